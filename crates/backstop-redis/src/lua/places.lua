-- Places in the ready line. A level is 2^51 wide. Its last quarter, 2^49, is given out in order;
-- the part before it is for jobs whose place was lost: see mend_jobs.lua.
local LEVEL_WIDTH, GIVEN_OUT = 2251799813685248, 562949953421312

local function place(level, seq)
  return (level + 1) * LEVEL_WIDTH - GIVEN_OUT + seq
end

-- Formats a place for Redis. As a number it would be written the way fractions are, at several
-- times the cost.
local function digits(place) return string.format('%d', place) end

-- Reserves `count` places at the tail of the line, and returns the first.
local function tail(count)
  return call('HINCRBY', META, 'seq', count) - count
end

local function place_of(lease) return string.match(lease, '^%d+', 19) end
