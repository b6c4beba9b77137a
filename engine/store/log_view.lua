-- Brings a hash that is a view of one topic up to date, if nobody else has done so meanwhile.
--
-- KEYS  1 the hash   2 the hash of cursors   3 the set of secrets that fields were made under
--       4 the set of fields whose newest record in the topic is not the one that counts
-- ARGV  1 name of the view   2 topic id   3 offset that the view is expected to have reached
--       4 offset that it has reached afterwards, and the digest of the record below, if it is known
--       5 first: values begin with an offset, and a
--       field that is there keeps its value as long as the topic has that offset; newest: values
--       begin with a partition and an offset, and of one partition the highest offset counts, else
--       the last value   6 the first offset that the topic has   7 number n of secrets
--       8..7+n secrets   then fields and values
--
-- Beside its cursor it notes how many fields the hash has then: a key that was removed or evicted
-- reads as an empty one.
--
-- Returns 1, or 0 if the view had not reached that offset of that topic: nothing was changed then.

local VIEW, CURSORS, SECRETS, LATE = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local reached = redis.call('HGET', CURSORS, ARGV[1]) or (ARGV[2] .. ' 0')
if string.match(reached, '^%S+ %d+') ~= ARGV[2] .. ' ' .. ARGV[3] then return 0 end

local function counts(new, old)
  local here, at = string.match(new, '^(%S+) (%d+)')
  local there, before = string.match(old or '', '^(%S+) (%d+)')
  return here ~= there or tonumber(at) >= tonumber(before)
end

local function is_kept(value)
  local offset = string.match(value or '', '^(%d+)')
  return offset and tonumber(offset) >= tonumber(ARGV[6])
end

local secrets = tonumber(ARGV[7])
for i = 8, 7 + secrets do redis.call('SADD', SECRETS, ARGV[i]) end
for i = 8 + secrets, #ARGV, 2 do
  local field, value = ARGV[i], ARGV[i + 1]
  if ARGV[5] == 'first' then
    if not is_kept(redis.call('HGET', VIEW, field)) then redis.call('HSET', VIEW, field, value) end
  elseif counts(value, redis.call('HGET', VIEW, field)) then
    redis.call('HSET', VIEW, field, value)
    redis.call('SREM', LATE, field)
  else
    redis.call('SADD', LATE, field)
  end
end
redis.call('HSET', CURSORS, ARGV[1], ARGV[2] .. ' ' .. ARGV[4],
           ARGV[1] .. ':size', redis.call('HLEN', VIEW))
return 1
