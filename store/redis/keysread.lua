-- Reads API keys. KEYS and fields are described in keys.go. ARGV is how to choose them:
--
--   get <id>              the key of the id
--   find <hash>           the key that the hash leads to
--   list <after> <n>      the first n whose ids are after one
--   changes <since> <n>   the first n that were changed after a revision
--
-- The reply is the sum over all revisions, the last revision, "1" if a part of what there
-- was is lost, and of each key its id, its revision and its record, or nothing for one
-- that was deleted.
local records, hashes, log, ids, meta, gone = unpack(KEYS)
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

-- A server that evicts drops one of the names whole; what is stored afterwards begins it
-- anew, with less than the others have.
local count = call('ZCARD', ids)
local partial = call('HLEN', records) ~= count or call('ZCARD', log) < count
  or count > 0 and call('EXISTS', meta) == 0
  or what == 'find' and call('HLEN', hashes) < count

local state = call('HMGET', meta, 'sum', 'last')
local reply = { state[1] or '0', state[2] or '0', partial and '1' or '0' }
for i, id in ipairs(chosen) do
  local record = call('HGET', records, id)
  local tell = record
  if what == 'changes' then
    if not partial then
      tell = true
    elseif record then
      tell = false
    else
      tell = call('ZSCORE', gone, id)
    end
  end
  if tell then
    reply[#reply + 1] = id
    reply[#reply + 1] = string.format('%.0f', tonumber(revision[i] or call('ZSCORE', log, id) or 0))
    reply[#reply + 1] = record or ''
  end
end
return reply
