-- The head of a key whose lease is extended to `asked`. If the key holds records, it is due when
-- the lease ends.
local function extended(head, asked, kept)
  local till = sub(head, 13, 20)
  if micros(till) > micros(kept) or micros(till) < micros(asked) then till = asked end
  local due = sub(head, 46, 49) == NONE and NEVER or till
  return sub(head, 1, 12) .. till .. sub(head, 21, 21) .. due .. sub(head, 30)
end
