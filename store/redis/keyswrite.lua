-- Changes one API key. KEYS and fields are described in keys.go. ARGV is what to do
-- and the key's id, and for "put" the record and the revision that it takes the place
-- of, "0" for none; "delete" may have one, too, with an empty record. The reply is "ok <revision>", "none", "taken" or "changed".
--
-- All that is read is read before the first write.
local records, hashes, log, ids, meta, gone = unpack(KEYS)
local what, id, record, expected = unpack(ARGV)
local call = redis.call

-- How long deletions are told, in milliseconds, and how many are forgotten in one go.
local remembered, forgotten = 3600000, 100
-- Revisions are below it, so that sums of two are exact.
local revisions = 4503599627370496

local digits = 43 -- of a hash; a record begins with two, the second blank where there is one
local function secrets(r)
  local found = { string.sub(r, 1, digits) }
  local previous = string.sub(r, digits + 1, 2 * digits)
  if not string.find(previous, ' ', 1, true) then found[2] = previous end
  return found
end

local old = call('HGET', records, id)
local from, unknown = 0, false -- unknown: of which revision the sum has the key
if old then
  from = tonumber(call('ZSCORE', log, id) or 0)
  unknown = from == 0
end

if what == 'put' then
  if old == record then return 'ok ' .. string.format('%.0f', from) end
  if expected == '0' then
    if old then return 'taken' end
  elseif not old or from ~= tonumber(expected) then
    return 'changed'
  end
  for _, hash in ipairs(secrets(record)) do
    local owner = call('HGET', hashes, hash)
    if owner and owner ~= id then return 'taken' end
  end
end

if what == 'delete' and expected and (not old or from ~= tonumber(expected)) then return 'changed' end

-- A server that evicts may have dropped the record, or any other name, and not the key.
local leading = {} -- the hashes that lead to the key
if old then
  leading = secrets(old)
elseif what == 'delete' then
  local count = call('ZCARD', ids)
  local known = call('ZSCORE', ids, id)
  if known or call('HLEN', records) ~= count or call('ZCARD', log) < count then
    local all = call('HGETALL', hashes)
    for i = 1, #all, 2 do
      if all[i + 1] == id then leading[#leading + 1] = all[i] end
    end
    local last = call('ZSCORE', log, id)
    if last and not call('ZSCORE', gone, id) then
      known = true
      from = tonumber(last)
    end
  end
  if not known and #leading == 0 then return 'none' end
  unknown = from == 0
end

local state = call('HMGET', meta, 'last', 'sum')
local time = call('TIME')
local to = math.max((tonumber(state[1]) or 0) + 1, time[1] * 1000000 + time[2])
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local sum = tonumber(state[2])
if not sum or unknown then -- it is added up anew
  sum = 0
  for _, other in ipairs(call('ZRANGE', ids, 0, -1)) do
    sum = sum + tonumber(call('ZSCORE', log, other) or 0)
    if sum >= revisions then sum = sum - revisions end
  end
end
sum = sum - from
if sum < 0 then sum = sum + revisions end
local over = call('ZRANGEBYSCORE', gone, '-inf', now - remembered, 'LIMIT', 0, forgotten)

for _, hash in ipairs(leading) do call('HDEL', hashes, hash) end
if what == 'put' then
  sum = sum + to
  if sum >= revisions then sum = sum - revisions end
  for _, hash in ipairs(secrets(record)) do call('HSET', hashes, hash, id) end
  call('HSET', records, id, record)
  call('ZADD', ids, 0, id)
  call('ZREM', gone, id)
else
  call('HDEL', records, id)
  call('ZREM', ids, id)
  call('ZADD', gone, string.format('%.0f', now), id)
end
call('ZADD', log, string.format('%.0f', to), id)
call('HSET', meta, 'last', string.format('%.0f', to), 'sum', string.format('%.0f', sum))
for _, past in ipairs(over) do
  if past ~= id then
    call('ZREM', log, past)
    call('ZREM', gone, past)
  end
end
return 'ok ' .. string.format('%.0f', to)
