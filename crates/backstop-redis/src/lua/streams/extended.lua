-- The head of a key whose holder asks for it until then. What it keeps is due when the lease is
-- over.
local function extended(head, asked, kept)
  local till = sub(head, 13, 20)
  if micros(till) > micros(kept) or micros(till) < micros(asked) then till = asked end
  local due = sub(head, 46, 49) == NONE and NEVER or till
  return sub(head, 1, 12) .. till .. sub(head, 21, 21) .. due .. sub(head, 30)
end
