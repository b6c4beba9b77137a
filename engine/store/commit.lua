-- The commit: from one state of a model to the next, or not at all.
--
-- It compares first (step 5a), checks every key and fact it is about to write (5b), and only
-- then writes (5c): a script that fails midway keeps its earlier writes, so nothing below the
-- line "writes" may fail. engine/store/commit.py builds the arguments.
--
-- KEYS  1 head  2 offsets  3 ledger  4 deletions  5 requests  6 deferred  7 outbox  8 erase
--       9 retired  10 parameters  11 discarded  12 V  13 Q  14 receipt log  15.. keys to persist
--       (a new generation that was staged with a time to live)
-- ARGV  1 manifest (JSON)  2.. binary values, in the order in which they are taken below

local CHUNK = 1000 -- unpack fails near 8,000 elements

local HEAD, OFFSETS, LEDGER, DELETIONS, REQUESTS = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local DEFERRED, OUTBOX, ERASE, RETIRED = KEYS[6], KEYS[7], KEYS[8], KEYS[9]
local PARAMETERS, DISCARDED, V, Q = KEYS[10], KEYS[11], KEYS[12], KEYS[13]
local RECEIPT_LOG = KEYS[14]
local STAGED = 15 -- the first of the keys to persist

local manifest = cjson.decode(ARGV[1])
local expected = manifest.expected

-- Another worker was faster: read again.
local function refuse(what, found)
  return {'CONFLICT', what, tostring(found or '')}
end

-- Nobody's commit explains this: writes were lost, or keys were restored or changed by hand.
local function corrupt(what, found)
  return {'CORRUPT', what, tostring(found or '')}
end

-- 5a. compare ---------------------------------------------------------------------------------

local held = redis.call('HMGET', HEAD, 'commit_seq', 'version', 'digest')
if (held[1] or '0') ~= expected.commit_seq then return refuse('commit_seq', held[1]) end
if (held[2] or '-1') ~= expected.version then return refuse('version', held[2]) end
if (held[3] or '') ~= expected.digest then return refuse('digest', held[3]) end
if manifest.partition ~= '' then
  local offset = redis.call('HGET', OFFSETS, manifest.partition) or ''
  if offset ~= expected.next_offset then return refuse('next_offset', offset) end
end

-- 5b. check -----------------------------------------------------------------------------------

local types = {
  [HEAD] = 'hash', [OFFSETS] = 'hash', [LEDGER] = 'hash', [DELETIONS] = 'list',
  [REQUESTS] = 'hash', [DEFERRED] = 'hash', [OUTBOX] = 'stream', [ERASE] = 'set',
  [RETIRED] = 'set', [PARAMETERS] = 'string', [DISCARDED] = 'set', [V] = 'list', [Q] = 'list',
  [RECEIPT_LOG] = 'list',
}
for key, wanted in pairs(types) do
  local found = redis.call('TYPE', key)['ok']
  if found ~= 'none' and found ~= wanted then return corrupt('type of ' .. key, found) end
end
for i = STAGED, #KEYS do
  if redis.call('EXISTS', KEYS[i]) == 0 then return refuse('staged', KEYS[i]) end
end
for _, row in ipairs(manifest.deleted) do
  if redis.call('HEXISTS', LEDGER, row) == 1 then return refuse('ledger', 'new') end
end
for i = 1, #manifest.requests, 2 do
  local receipt = redis.call('HGET', REQUESTS, manifest.requests[i])
  if receipt and string.sub(receipt, 1, 1) == 'F' and not manifest.replaces_finals then
    return refuse('receipt', manifest.requests[i])
  end
end
if redis.call('LLEN', V) ~= manifest.v_before then return refuse('rows of V', '') end
if redis.call('LLEN', Q) ~= manifest.q_before then return refuse('rows of Q', '') end
if manifest.deletions_before and redis.call('LLEN', DELETIONS) ~= manifest.deletions_before then
  return corrupt('length of ' .. DELETIONS, redis.call('LLEN', DELETIONS))
end
if manifest.log_before and redis.call('LLEN', RECEIPT_LOG) ~= manifest.log_before then
  return corrupt('length of ' .. RECEIPT_LOG, redis.call('LLEN', RECEIPT_LOG))
end
for _, entry in ipairs(manifest.withdrawn) do
  if #redis.call('XRANGE', OUTBOX, entry, entry) == 0 then return refuse('outbox', entry) end
end
if redis.call('EXISTS', OUTBOX) == 1 then -- XADD takes only an id above all that it ever took
  local about = redis.call('XINFO', 'STREAM', OUTBOX)
  for i = 1, #about, 2 do
    if about[i] == 'last-generated-id' then
      local last = tonumber(string.match(about[i + 1], '^(%d+)-'))
      if last > tonumber(expected.commit_seq) then
        return corrupt('newest commit in ' .. OUTBOX, string.format('%.0f', last))
      end
    end
  end
end
local needed = 1 + 2 * manifest.head + manifest.v + manifest.q + manifest.log
  + manifest.outbox + manifest.parameters
if #ARGV ~= needed then return refuse('arguments', #ARGV) end

-- 5c. writes: nothing below may fail ------------------------------------------------------------

local taken = 1

local function take(n)
  local values = {}
  for i = 1, n do values[i] = ARGV[taken + i] end
  taken = taken + n
  return values
end

local function in_chunks(command, key, values)
  for first = 1, #values, CHUNK do
    redis.call(command, key, unpack(values, first, math.min(first + CHUNK - 1, #values)))
  end
end

redis.call('HINCRBY', HEAD, 'commit_seq', 1)
local fields = take(2 * manifest.head)
if #fields > 0 then in_chunks('HSET', HEAD, fields) end
if manifest.partition ~= '' then
  redis.call('HSET', OFFSETS, manifest.partition, manifest.next_offset)
end

in_chunks('RPUSH', V, take(manifest.v))
if manifest.clear_q then redis.call('DEL', Q) end
in_chunks('RPUSH', Q, take(manifest.q))
if manifest.log_kept == 0 then
  redis.call('DEL', RECEIPT_LOG)
elseif manifest.log_kept then
  redis.call('LTRIM', RECEIPT_LOG, 0, manifest.log_kept - 1)
end
in_chunks('RPUSH', RECEIPT_LOG, take(manifest.log))

for _, row in ipairs(manifest.deleted) do
  redis.call('HSET', LEDGER, row, manifest.deleted_versions[row] or manifest.deleted_version)
end
in_chunks('RPUSH', DELETIONS, manifest.deleted)
in_chunks('SREM', RETIRED, manifest.deleted)
in_chunks('SADD', RETIRED, manifest.retired)
in_chunks('SADD', ERASE, manifest.erase)
in_chunks('HSET', REQUESTS, manifest.requests)
in_chunks('HSET', DEFERRED, manifest.deferred)
in_chunks('HDEL', DEFERRED, manifest.undeferred)
in_chunks('SADD', DISCARDED, manifest.discarded)
for i = STAGED, #KEYS do redis.call('PERSIST', KEYS[i]) end

in_chunks('XDEL', OUTBOX, manifest.withdrawn)
local sequence = redis.call('HGET', HEAD, 'commit_seq')
for i, entry in ipairs(take(manifest.outbox)) do
  redis.call('XADD', OUTBOX, sequence .. '-' .. i, 'entry', entry)
end
for _, event in ipairs(take(manifest.parameters)) do redis.call('SET', PARAMETERS, event) end

if held[2] == false then -- not registered until now: all of it expires at one moment, or stays
  for _, key in ipairs({HEAD, OFFSETS, REQUESTS, OUTBOX}) do
    if manifest.expire > 0 then
      redis.call('EXPIRE', key, manifest.expire)
    else
      redis.call('PERSIST', key)
    end
  end
end

return {'OK', sequence}
