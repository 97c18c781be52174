-- Reads API keys. KEYS and fields are described in keys.go. ARGV is how to choose them:
--
--   get <id>              the key of the id
--   find <hash>           the key that the hash leads to
--   list <after> <n>      the first n whose ids are after one
--   changes <since> <n>   the first n that were changed after a revision
--
-- The reply is the sum over all revisions, the last revision, and of each key its id,
-- its revision and its record, or nothing for one that was deleted.
local records, hashes, log, ids, meta = unpack(KEYS)
local what, which, n = unpack(ARGV)
local call = redis.call

local chosen, revision = {}, {}
if what == 'get' then
  chosen = { which }
elseif what == 'find' then
  chosen = { call('HGET', hashes, which) or nil }
elseif what == 'list' then
  local from = '-'
  if which ~= '' then from = '(' .. which end
  chosen = call('ZRANGEBYLEX', ids, from, '+', 'LIMIT', 0, n)
else
  local found = call('ZRANGEBYSCORE', log, '(' .. which, '+inf', 'WITHSCORES', 'LIMIT', 0, n)
  for i = 1, #found, 2 do
    chosen[#chosen + 1] = found[i]
    revision[#chosen] = found[i + 1]
  end
end

local state = call('HMGET', meta, 'sum', 'last')
local reply = { state[1] or '0', state[2] or '0' }
for i, id in ipairs(chosen) do
  local record = call('HGET', records, id)
  if record or what == 'changes' then
    reply[#reply + 1] = id
    reply[#reply + 1] = string.format('%.0f', tonumber(revision[i] or call('ZSCORE', log, id)))
    reply[#reply + 1] = record or ''
  end
end
return reply
