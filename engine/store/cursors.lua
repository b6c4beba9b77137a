-- Moves one of the two cursors of a commits partition, or of a model that lags behind it.
--
-- KEYS  1 cursors
-- ARGV  1 which cursor: apply or published; or behind: only note the pairs   2 low   3 high
--       4 digest of the record below high, empty if nothing is known of it   5 its leader epoch
--       6 the model whose own cursor this is, or empty
--       7.. models that halt
--
-- A cursor moves only from low or above it, and never back. Before a cursor passes records of a
-- model that halts, the model gets a pair of cursors of its own, made of the partition's: one halted
-- model must not pin its partition. The pair goes when both have reached the partition's.
--
-- Returns the partition's two cursors before.

local CURSORS = KEYS[1]
local which, low, high = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local apply = tonumber(redis.call('HGET', CURSORS, 'apply') or '0')
local published = tonumber(redis.call('HGET', CURSORS, 'published') or '0')
local before = {string.format('%.0f', apply), string.format('%.0f', published)}

local function text(pair)
  return string.format('%.0f %.0f', pair[1], pair[2])
end

if ARGV[6] ~= '' then
  local field = 'behind:' .. ARGV[6]
  local kept = redis.call('HGET', CURSORS, field)
  if not kept then return before end
  local first, second = string.match(kept, '^(%d+) (%d+)$')
  local pair = {tonumber(first), tonumber(second)}
  local place = which == 'apply' and 1 or 2
  if low <= pair[place] and pair[place] < high then pair[place] = high end
  if pair[1] >= apply and pair[2] >= published then
    redis.call('HDEL', CURSORS, field)
  else
    redis.call('HSET', CURSORS, field, text(pair))
  end
  return before
end

if which == 'behind' then
  for i = 7, #ARGV do
    redis.call('HSETNX', CURSORS, 'behind:' .. ARGV[i], text({apply, published}))
  end
  return before
end

local cursor = which == 'apply' and apply or published
if low <= cursor and cursor < high then
  for i = 7, #ARGV do
    redis.call('HSETNX', CURSORS, 'behind:' .. ARGV[i], text({apply, published}))
  end
  redis.call('HSET', CURSORS, which, string.format('%.0f', high))
  if which == 'apply' then
    redis.call('HSET', CURSORS, 'below', ARGV[4], 'epoch', ARGV[5])
  end
end
return before
