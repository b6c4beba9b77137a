-- A member's heartbeat: renews its leases, takes the free partitions of its share, and gives up
-- those outside its share.
--
-- KEYS[1] topic record   KEYS[2] members (sorted set: token -> expiry)   KEYS[3] leases (hash)
-- ARGV[1] token   ARGV[2] duration of a lease and a membership in milliseconds; 0 leaves the group
--
-- Partition p belongs to member number p modulo n of the n live members, sorted by token. A lease
-- that expired and is taken again, even by the same member, has a new tenure number: the former
-- owner must drop its work in flight.
--
-- Returns the topic id, 1 if it is compacted and, for each lease held: partition, tenure, first
-- offset, next offset.
local token, lasts = ARGV[1], tonumber(ARGV[2])
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local expiry = string.format('%d', now + lasts)

redis.call('ZREMRANGEBYSCORE', KEYS[2], '-inf', string.format('%d', now))
if lasts > 0 then
  redis.call('ZADD', KEYS[2], expiry, token)
else
  redis.call('ZREM', KEYS[2], token)
end
local members = redis.call('ZRANGE', KEYS[2], 0, -1)
table.sort(members)

local topic = redis.call('HMGET', KEYS[1], 'id', 'partitions', 'compacted')
local answer = {topic[1] or '', tonumber(topic[3] or '0')}
for p = 0, tonumber(topic[2] or '0') - 1 do
  local lease = redis.call('HMGET', KEYS[3], 'owner:' .. p, 'expiry:' .. p, 'tenure:' .. p)
  local live = lease[1] and tonumber(lease[2]) > now
  local tenure = tonumber(lease[3] or '0')
  local mine = lasts > 0 and members[p % #members + 1] == token
  if mine and (not live or lease[1] == token) then
    if not live then
      tenure = tenure + 1
    end
    redis.call('HSET', KEYS[3], 'owner:' .. p, token, 'expiry:' .. p, expiry,
      'tenure:' .. p, string.format('%d', tenure))
    local bounds = redis.call('HMGET', KEYS[1], 'begin:' .. p, 'next:' .. p)
    answer[#answer + 1] = p
    answer[#answer + 1] = tenure
    answer[#answer + 1] = tonumber(bounds[1] or '0')
    answer[#answer + 1] = tonumber(bounds[2] or '0')
  elseif lease[1] == token then
    redis.call('HDEL', KEYS[3], 'owner:' .. p, 'expiry:' .. p)
  end
end
return answer
