-- Changes an entity by an operator's hand: gives it a limit of its own, takes that away,
-- or clears its counters. To run it twice comes to the same as once.
--
-- KEYS[1] is the entity's hash. ARGV:
--   1 the consumer's name, where the key does not say it
--   2 the field of a rule's counter, or "" to clear all counters
--   3 the limit, or "" to take it away
--   4 the rule's ID, in which there is no blank and no line break
--
-- The limits are the field "o": of each, a line break, the field of the rule's counter,
-- the limit and the rule's ID. While there are any, the hash does not expire.

local call, fmt, match = redis.call, string.format, string.match
local key, consumer, field, limit = KEYS[1], ARGV[1], ARGV[2], ARGV[3]

-- What each counter says: when it began, when it is of no use any more, its holds.
local function read(value)
  local start, lives, rest = match(value, '^(%d+) %-?%d+ %-?%d+ (%d+)(.*)$')
  if not start then return end
  local till = start + lives * 1000
  for d in string.gmatch(rest, ' (%d+) %d+') do
    if tonumber(d) > till then till = tonumber(d) end
  end
  return till, start, rest
end

if field == '' then
  local all, set, gone = call('HGETALL', key), {}, {}
  for i = 1, #all, 2 do
    if string.byte(all[i]) == 119 then -- w
      local _, start, rest = read(all[i + 1])
      if rest and rest ~= '' then
        set[#set + 1], set[#set + 2] = all[i], start .. ' 0 0 0' .. rest
      else
        gone[#gone + 1] = all[i]
      end
    end
  end
  for i = 1, #set, 1000 do call('HSET', key, unpack(set, i, math.min(i + 999, #set))) end
  for i = 1, #gone, 1000 do call('HDEL', key, unpack(gone, i, math.min(i + 999, #gone))) end
  return 'OK'
end

local before = call('HGET', key, 'o') or ''
local after = before
local from, to = string.find(after, '\n' .. field .. ' ', 1, true)
if from then
  local rest = string.find(after, '\n', to, true)
  after = string.sub(after, 1, from - 1) .. (rest and string.sub(after, rest) or '')
end
if limit ~= '' then
  after = after .. '\n' .. field .. ' ' .. limit .. ' ' .. ARGV[4]
  if consumer ~= '' then call('HSET', key, 'o', after, 'n', consumer) else call('HSET', key, 'o', after) end
  call('PERSIST', key)
elseif after ~= '' then
  call('HSET', key, 'o', after)
  call('PERSIST', key)
elseif before ~= '' then
  local time = call('TIME')
  local now = time[1] * 1000 + math.floor(time[2] / 1000)
  local all, ends = call('HGETALL', key), now + 600000
  for i = 1, #all, 2 do
    if string.byte(all[i]) == 119 then
      local till = read(all[i + 1])
      if till and till > ends then ends = till end
    end
  end
  call('HDEL', key, 'o')
  call('PEXPIRE', key, fmt('%d', ends - now + math.floor((ends - now) / 8)))
end
return 'OK'
