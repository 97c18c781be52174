-- The common case, without a function of its own for anything: Lua would make each
-- anew whenever the script is run, which costs more than what they do. It is a take
-- that was sent in the short form, whose counters have few enough digits for Lua's
-- numbers; without limits of the entity's own; and nothing that is done once in a
-- while. All else goes to whole, which must come to the same.

local call, match, fmt, floor = redis.call, string.match, string.format, math.floor
local byte = string.byte
local key, kinds = KEYS[1], ARGV[3]
local time = call('TIME')
local now = time[1] * 1000 + floor(time[2] / 1000)

if byte(kinds) ~= 112 then
  local fields, n = {ARGV[1]}, tonumber(kinds)
  for i = 1, n do fields[i + 1] = ARGV[3 + 3 * i] end
  fields[n + 2] = 'o'
  return whole(now, call('HMGET', key, unpack(fields)), ARGV)
end

local rules, number = #kinds - 1, ARGV[2] + 0
ARGV[6 + rules] = 'o'
local values = call('HMGET', key, ARGV[1], unpack(ARGV, 6))
if values[rules + 2] or values[1] and match(values[1], '^%d+') + 0 >= number then return whole(now, values, ARGV) end

local numbers, numbered = ARGV[4], struct.unpack
local lease, grid, p = numbered('<dd', numbers)
local to = math.ceil((now + lease) / grid) * grid
local out, set, admitted = {'', unpack(values, 2, rules + 1)}, {}, true
local lasts, ends = 0, now + 600000
for i = 1, rules do
  local kind, value = byte(kinds, i + 1), values[i + 1]
  local flags, high, low, need, used, hold, begins, over
  flags, high, low, need, used, hold, begins, over, p = numbered('<dddddddd', numbers, p)

  -- The counter as it is.
  local start, was, prev, len, held, holds, last, mine = 0, 0, 0, 0, 0, '', 0, hold
  if value then
    local d, a, rest
    start, was, prev, d, a, rest = match(value, '^(%d+) (%-?%d+) (%-?%d+) %d+ ?(%d*) ?(%d*)(.*)$')
    if not start or #was > 15 or #prev > 15 then return whole(now, values, ARGV) end
    start, was, prev = start + 0, was + 0, prev + 0
    -- What is held, and will be.
    if d ~= '' then
      local more = rest ~= '' and string.gmatch(rest, '(%d+) (%d+)')
      repeat
        if a == '' or #a > 15 then return whole(now, values, ARGV) end
        local at = d + 0
        if at > now then
          held = held + a
          if at == to then
            mine = mine + a
          else
            holds = holds .. ' ' .. d .. ' ' .. a
            if at > last then last = at end
          end
        end
        if more then d, a = more() else d = nil end
      until not d
      if held > 4e15 then return whole(now, values, ARGV) end
    end
  else
    out[i + 1] = ''
  end
  if kind == 110 then -- n
    start, was, prev, used = 0, 0, 0, 0
  else
    if kind == 99 then -- c
      if now < begins or now >= over then return whole(now, values, ARGV) end
      len = over - begins
    else
      len = begins
      begins = now - now % len
    end
    if begins > start then
      prev = (kind == 114 and begins - start == len) and was or 0 -- r
      start, was = begins, 0
    end
  end

  local sum = was
  if prev ~= 0 and kind == 114 then
    local part = prev * (start + len - (now > start and now or start))
    if prev < 0 or part >= 9e15 then return whole(now, values, ARGV) end
    sum = sum + floor(part / len)
  end
  if flags % 2 == 0 then sum = sum + held end
  -- A limit of more digits is compared rightly, for the sum is below 7*10^15.
  if flags < 2 and sum + need > high * 1e9 + low then admitted = false end

  if admitted and (used ~= 0 or hold ~= 0) then
    was = was + used
    local lives = 0
    if was ~= 0 or prev ~= 0 then lives = floor((kind == 114 and 2 * len or len) / 1000 + 1) end
    if start + lives * 1000 > last then last = start + lives * 1000 end
    local s
    if mine > 0 then
      s = fmt('%d %d %d %d%s %d %d', start, was, prev, lives, holds, to, mine)
      if to > last then last = to end
    elseif holds == '' and lives == 0 then
      return whole(now, values, ARGV)
    else
      s = fmt('%d %d %d %d%s', start, was, prev, lives, holds)
    end
    if not value and number % 32 == 0 then return whole(now, values, ARGV) end
    if last > ends then ends = last end
    lasts = lasts + 2
    set[lasts - 1], set[lasts] = ARGV[5 + i], s
  end
end

if not admitted then
  out[1] = fmt('V %d 0', now)
else
  if lasts > 0 then
    set[lasts + 1], set[lasts + 2] = ARGV[1], fmt('%s %d 1', ARGV[2], now)
    if ARGV[5] ~= '' and not values[1] then
      set[lasts + 3], set[lasts + 4] = 'n', ARGV[5]
    end
    call('HSET', key, unpack(set))
    local ttl = ends - now
    if call('PTTL', key) < ttl then call('PEXPIRE', key, fmt('%d', ttl + floor(ttl / 8))) end
  end
  out[1] = fmt('V %d 1', now)
end
return table.concat(out, '\n')
