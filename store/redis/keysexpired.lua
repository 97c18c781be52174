-- Finds API keys that have expired. KEYS and fields are described in keys.go. ARGV is the
-- id after which to begin, how many keys to look at, and how long ago, in milliseconds,
-- a key must have expired by this server's clock.
--
-- The reply is the id to go on after, empty at the end, and of each key its id and its
-- revision. Where a part of what there was is lost, nothing is told.
local records, hashes, log, ids, meta = unpack(KEYS)
local after, n, ago = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local call = redis.call

local count = call('ZCARD', ids)
if call('HLEN', records) ~= count or call('ZCARD', log) < count or call('EXISTS', meta) == 0 then
  return { '' }
end

local from = '-'
if after ~= '' then from = '(' .. after end
local chosen = call('ZRANGEBYLEX', ids, from, '+', 'LIMIT', 0, n)
local reply = { '' }
if #chosen == n then reply[1] = chosen[n] end

local time = call('TIME')
local before = time[1] * 1000 + math.floor(time[2] / 1000) - ago
local secrets = 2 * 43 -- digits of the hashes that a record begins with
for _, id in ipairs(chosen) do
  local readable, key = pcall(cjson.decode, string.sub(call('HGET', records, id) or '', secrets + 1))
  local expires = readable and type(key) == 'table' and tonumber(key.exp)
  local revision = call('ZSCORE', log, id)
  if expires and expires <= before and revision then
    reply[#reply + 1] = id
    reply[#reply + 1] = string.format('%.0f', tonumber(revision))
  end
end
return reply
