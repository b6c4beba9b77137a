-- Applies one commit to the store's view of a model (step 7 of docs/commit.md), or changes nothing.
--
-- It compares the head with what the commit continues (7a), checks every key that it is about to
-- write (7b), and only then writes (7c): a script that fails midway keeps its earlier writes, so
-- nothing below the line "writes" may fail. engine/store/apply.py builds the arguments, and
-- says what the manifest's jump, repeats, lowers, rows and arrays mean.
--
-- A commit that the head has already is applied again all the same, as far as that can be repeated:
-- its rows join the ledger and its requests the index, because a registration may have jumped over
-- it, or such a key may have been lost: then the requests that wait, and the rows that a --replace
-- left out, are noted again, too. Last, its place in lethe.commits is noted, so that the next fold
-- begins behind it. These writes can be repeated, so they need none of 7b's checks.
--
-- KEYS (docs/state.md has their types and sizes)
--
--  1 head        A hash: number and digest of the newest commit, meta, thetas, and the names of the
--                live generation and of its arrays. What a commit is compared with.
--  2 offsets     A hash of partitions of requests -> the next offset to process.
--  3 ledger      A hash of deleted row ids -> the version that deleted them. Nothing leaves it.
--  4 deletions   A list of the row ids deleted since the live generation was made, in order.
--  5 requests    A hash of request ids -> receipt, preceded by F (final) or P (pending).
--  6 deferred    A hash of the requests that wait for a rebuild.
--  7 retired     A set of the row ids that a --replace left out.
--  8 models      The set of the partition's model ids.
--  9 cursors     A hash: how far the partition of lethe.commits is applied and published.
-- 10 erasures    A hash: when a row was last erased, for the rewriting of the server's files.
-- 11 V  12 Q     Lists of vectors: what was left out of the generation that is live afterwards, and
--                the basis of its span.
-- 13 ids         A list of the row ids of the data set, in the order of the file.
-- 14 subjects    A hash of subject ids -> their row ids (JSON).
-- 15 tombstones  A sorted set of rows to be deleted that were not there -> when it is forgotten.
-- 16 changed     A list of the row ids inserted or corrected since that generation became live.
-- 17 sums        A hash: sums over rows of a model with preprocessing, or with exact sums, and which
--                rows came and went since.
-- 18 disclosed   A hash of row ids -> what versions have disclosed of each (25 bytes a version).
-- 19..           The shards of its row records: hashes of row ids -> record (manifest.shards keys).
-- then           Staged keys that become live: they lose their expiry (manifest.persist keys).
-- the rest       Keys that cease to be.
--
-- ARGV  1 manifest (JSON)  2.. binary values, in the order in which they are taken below
--
-- Returns APPLIED or ALREADY; or BEHIND, FORK, ARRAYS, ROWS, STAGED or CORRUPT with what was
-- found, and then it has written nothing.

local CHUNK = 1000 -- unpack fails near 8,000 elements

local HEAD, OFFSETS, LEDGER, DELETIONS, REQUESTS = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local DEFERRED, RETIRED, MODELS, CURSORS, ERASURES = KEYS[6], KEYS[7], KEYS[8], KEYS[9], KEYS[10]
local V, Q, IDS, SUBJECTS, TOMBSTONES = KEYS[11], KEYS[12], KEYS[13], KEYS[14], KEYS[15]
local CHANGED = KEYS[16]
local SUMS = KEYS[17]
local DISCLOSED = KEYS[18]
local SHARDS = 18 -- the shard number s is KEYS[SHARDS + s], s from 1 (manifest.erase counts from 0)

local manifest = cjson.decode(ARGV[1])
local PERSIST = SHARDS + manifest.shards
local UNLINK = PERSIST + manifest.persist

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

-- A row that was deleted before keeps the version of then: a registration may name rows again that
-- its store had forgotten.
local function note_deleted()
  for _, row in ipairs(manifest.deleted) do
    local kept = tonumber(redis.call('HGET', LEDGER, row) or '')
    if not kept or kept > tonumber(manifest.version) then
      redis.call('HSET', LEDGER, row, manifest.version)
    end
  end
end

-- A final receipt begins with F, one of a request that waits with P. A final one never changes.
local function index_requests(requests)
  for i = 1, #requests, 2 do
    local id, receipt = requests[i], requests[i + 1]
    local kept = redis.call('HGET', REQUESTS, id)
    local waits = kept and string.sub(kept, 1, 1) == 'P'
    if not kept or (waits and string.sub(receipt, 1, 1) == 'F') then
      redis.call('HSET', REQUESTS, id, receipt)
    end
  end
end

-- How many entries the keys have that nothing else counts. The head has it as it is after each commit
-- (engine/store/counts.py): a key that was lost is not taken for an empty one.
local function counted()
  return string.format('%d %d %d %d', redis.call('HLEN', LEDGER), redis.call('HLEN', REQUESTS),
    redis.call('SCARD', RETIRED), redis.call('HLEN', DEFERRED))
end

local function counted_data()
  return string.format('%s %d %d', manifest.dataset, redis.call('LLEN', IDS),
    redis.call('HLEN', SUBJECTS))
end

local function note_waiting()
  in_chunks('SREM', RETIRED, manifest.inserted)
  in_chunks('SREM', RETIRED, manifest.deleted)
  in_chunks('SADD', RETIRED, manifest.retired)
  if manifest.resets_deferred then redis.call('DEL', DEFERRED) end
  in_chunks('HSET', DEFERRED, manifest.deferred)
  in_chunks('HDEL', DEFERRED, manifest.undeferred)
end

-- The cursor moves past this record only if it already stands after the previous valid record; only
-- void records lie between.
-- A model that was halted has a pair of its own while it catches up (engine/store/cursors.lua).
local function move_cursors()
  local offset, low = manifest.offset, manifest.previous_end
  local after = string.format('%.0f', offset + 1)
  local cursor = tonumber(redis.call('HGET', CURSORS, 'apply') or '0')
  if low <= cursor and cursor <= offset then
    local published = redis.call('HGET', CURSORS, 'published') or '0'
    for _, halted in ipairs(manifest.halted) do
      redis.call('HSETNX', CURSORS, 'behind:' .. halted,
        string.format('%.0f %.0f', cursor, tonumber(published)))
    end
    redis.call('HSET', CURSORS, 'apply', after, 'below', manifest.digest, 'epoch', manifest.epoch)
    cursor = offset + 1
  end
  local behind = 'behind:' .. manifest.model
  local pair = redis.call('HGET', CURSORS, behind)
  if pair then
    local applied, published = string.match(pair, '^(%d+) (%d+)$')
    applied, published = tonumber(applied), tonumber(published)
    if manifest.model_previous_end <= applied and applied <= offset then
      applied = offset + 1
      local reached = tonumber(redis.call('HGET', CURSORS, 'published') or '0')
      if applied >= cursor and published >= reached then
        redis.call('HDEL', CURSORS, behind)
      else
        redis.call('HSET', CURSORS, behind, string.format('%.0f %.0f', applied, published))
      end
    end
  end
end

-- 7a. compare ---------------------------------------------------------------------------------

local held = redis.call('HMGET', HEAD, 'commit', 'digest', 'arrays', 'rows', 'counts', 'data')
local at = tonumber(held[1] or '-1')

if at >= manifest.commit then
  if at == manifest.commit and held[2] ~= manifest.digest then return {'FORK', held[2]} end
  local whole = not held[5] or held[5] == counted()
  note_deleted()
  index_requests(take(2 * manifest.requests))
  if not whole then -- a key was lost: a fold applies all commits that the log has, in their order
    note_waiting()
  elseif held[5] then
    redis.call('HSET', HEAD, 'counts', counted())
  end
  move_cursors()
  return {'ALREADY', tostring(at)}
end
if manifest.repeats then return {'BEHIND', tostring(at)} end
if not manifest.jump then
  if at < manifest.commit - 1 then return {'BEHIND', tostring(at)} end
  if (held[2] or '') ~= manifest.prev then return {'FORK', held[2] or ''} end
end
if manifest.arrays and (held[3] or '') ~= manifest.arrays then return {'ARRAYS', held[3] or ''} end
if manifest.rows and (held[4] or '') ~= manifest.rows then return {'ROWS', held[4] or ''} end

-- 7b. check -----------------------------------------------------------------------------------

for i = PERSIST + 1, PERSIST + manifest.persist do
  if redis.call('EXISTS', KEYS[i]) == 0 then return {'STAGED', KEYS[i]} end
end
local types = {
  [HEAD] = 'hash', [OFFSETS] = 'hash', [LEDGER] = 'hash', [DELETIONS] = 'list',
  [REQUESTS] = 'hash', [DEFERRED] = 'hash', [RETIRED] = 'set', [MODELS] = 'set',
  [CURSORS] = 'hash', [ERASURES] = 'hash', [V] = 'list', [Q] = 'list',
  [IDS] = 'list', [SUBJECTS] = 'hash', [TOMBSTONES] = 'zset',
  [CHANGED] = 'list', [SUMS] = 'hash', [DISCLOSED] = 'hash',
}
for s = 1, manifest.shards do types[KEYS[SHARDS + s]] = 'hash' end
for key, wanted in pairs(types) do
  local found = redis.call('TYPE', key)['ok']
  if found ~= 'none' and found ~= wanted then return {'CORRUPT', key .. ' is a ' .. found} end
end
if not manifest.jump then -- a registration, or a checkpoint, states what is known anew
  if held[5] and held[5] ~= counted() then return {'CORRUPT', 'entries were lost'} end
  local dataset = held[6] and string.match(held[6], '^(%S*) ')
  if dataset == manifest.dataset and held[6] ~= counted_data() then
    return {'CORRUPT', 'rows or subjects were lost'}
  end
end
for _, row in ipairs(manifest.jump and {} or manifest.deleted) do
  if redis.call('HEXISTS', LEDGER, row) == 1 then return {'CORRUPT', 'a row in the ledger'} end
end
for _, row in ipairs(manifest.inserted) do
  if redis.call('HEXISTS', LEDGER, row) == 1 then return {'CORRUPT', 'an inserted row, deleted'} end
end
local rows_of = {} -- as they are afterwards, of the subjects of inserted rows
for subject, inserted in pairs(manifest.subjects) do
  local parsed, rows = pcall(cjson.decode, redis.call('HGET', SUBJECTS, subject) or '[]')
  if not parsed or type(rows) ~= 'table' then return {'CORRUPT', "a subject's rows"} end
  for _, row in ipairs(inserted) do rows[#rows + 1] = row end
  rows_of[subject] = cjson.encode(rows)
end
if manifest.v_before then
  if redis.call('LLEN', V) ~= manifest.v_before then return {'CORRUPT', 'rows of V'} end
  if redis.call('LLEN', Q) ~= manifest.q_before then return {'CORRUPT', 'rows of Q'} end
end
local needed = 1 + 2 * manifest.requests + 2 * manifest.head + manifest.v + manifest.q
  + 2 * manifest.sums + 2 * manifest.records + 2 * manifest.disclosed
if #ARGV ~= needed then return {'CORRUPT', 'arguments: ' .. #ARGV} end

-- 7c. writes: nothing below may fail ------------------------------------------------------------

index_requests(take(2 * manifest.requests))
in_chunks('HSET', HEAD, take(2 * manifest.head))
for i = 1, #manifest.offsets, 2 do
  local partition, offset = manifest.offsets[i], manifest.offsets[i + 1]
  local former = tonumber(redis.call('HGET', OFFSETS, partition) or '-1')
  if offset > former or manifest.lowers then
    redis.call('HSET', OFFSETS, partition, string.format('%.0f', offset))
  end
end

for i = PERSIST + 1, PERSIST + manifest.persist do redis.call('PERSIST', KEYS[i]) end
if manifest.deletions_from then
  redis.call('DEL', DELETIONS)
  redis.call('HSET', HEAD, 'deletions_from', string.format('%.0f', manifest.deletions_from))
end
in_chunks('RPUSH', V, take(manifest.v))
if manifest.clear_q then redis.call('DEL', Q) end
in_chunks('RPUSH', Q, take(manifest.q))
if manifest.clear_sums then redis.call('DEL', SUMS) end
in_chunks('HSET', SUMS, take(2 * manifest.sums))

for _, part in ipairs(manifest.written) do
  in_chunks('HSET', KEYS[SHARDS + part[1] + 1], take(2 * part[2]))
end
in_chunks('RPUSH', CHANGED, manifest.changed)
in_chunks('RPUSH', IDS, manifest.inserted)
for subject, rows in pairs(rows_of) do redis.call('HSET', SUBJECTS, subject, rows) end

note_deleted()
in_chunks('RPUSH', DELETIONS, manifest.deleted)
note_waiting()

local disclosed = take(2 * manifest.disclosed)
for i = 1, #disclosed, 2 do
  local entries = redis.call('HGET', DISCLOSED, disclosed[i]) or ''
  redis.call('HSET', DISCLOSED, disclosed[i], entries .. disclosed[i + 1])
end
in_chunks('HDEL', DISCLOSED, manifest.undisclosed)

for s, rows in pairs(manifest.erase) do in_chunks('HDEL', KEYS[SHARDS + tonumber(s) + 1], rows) end
for i = UNLINK + 1, #KEYS do redis.call('UNLINK', KEYS[i]) end
if #manifest.tombstones > 0 then
  in_chunks('ZADD', TOMBSTONES, manifest.tombstones)
  redis.call('ZREMRANGEBYSCORE', TOMBSTONES, '-inf', redis.call('TIME')[1])
  local newest = redis.call('ZRANGE', TOMBSTONES, -1, -1, 'WITHSCORES')
  if newest[2] then redis.call('EXPIREAT', TOMBSTONES, newest[2]) end
end

-- A record that is overwritten is erased as well: of a corrected row.
if next(manifest.erase) ~= nil or manifest.records > #manifest.inserted or #KEYS > UNLINK then
  local time = redis.call('TIME')
  redis.call('HSET', ERASURES, 'last', time[1] .. '.' .. string.format('%06d', time[2]))
end
redis.call('HSET', HEAD, 'counts', counted(), 'data', counted_data())
if redis.call('SADD', MODELS, manifest.model) == 1 or redis.call('HEXISTS', CURSORS, 'models') == 0 then
  -- Never lower: a set that was removed or evicted, and begins anew, must be noticed.
  local known, now = redis.call('HGET', CURSORS, 'models'), redis.call('SCARD', MODELS)
  redis.call('HSET', CURSORS, 'models', math.max(tonumber(known or 0), now))
end
move_cursors()
return {'APPLIED', tostring(manifest.commit)}
