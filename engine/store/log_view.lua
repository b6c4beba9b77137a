-- Brings a hash that is a view of one topic up to date, if nobody else has done so meanwhile.
--
-- KEYS  1 the hash   2 the hash of cursors   3 the set of secrets that fields were made under
-- ARGV  1 name of the view   2 topic id   3 offset that the view is expected to have reached
--       4 offset that it has reached afterwards   5 first: a field that is there keeps its value;
--       last: it gets the new one   6 number n of secrets   7..6+n secrets
--       then fields and values; a field with an empty value is removed
--
-- Returns 1, or 0 if the view had not reached that offset of that topic: nothing was changed then.

local VIEW, CURSORS, SECRETS = KEYS[1], KEYS[2], KEYS[3]
local reached = redis.call('HGET', CURSORS, ARGV[1]) or (ARGV[2] .. ' 0')
if reached ~= ARGV[2] .. ' ' .. ARGV[3] then return 0 end
local secrets = tonumber(ARGV[6])
for i = 7, 6 + secrets do redis.call('SADD', SECRETS, ARGV[i]) end
for i = 7 + secrets, #ARGV, 2 do
  if ARGV[i + 1] == '' then
    redis.call('HDEL', VIEW, ARGV[i])
  elseif ARGV[5] == 'first' then
    redis.call('HSETNX', VIEW, ARGV[i], ARGV[i + 1])
  else
    redis.call('HSET', VIEW, ARGV[i], ARGV[i + 1])
  end
end
redis.call('HSET', CURSORS, ARGV[1], ARGV[2] .. ' ' .. ARGV[4])
return 1
