-- The common case, without a function of its own for anything: Lua would make each
-- anew whenever the script is run, which costs more than what they do. It is one
-- call, whose amounts and counters have few enough digits for Lua's numbers; no
-- token bucket; and nothing that is done once in a while. All else goes to whole,
-- which must come to the same.

local call, match, fmt, floor = redis.call, string.match, string.format, math.floor
local key, number, rules, first = KEYS[1], tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local time = call('TIME')
local now = time[1] * 1000 + floor(time[2] / 1000)

local fields = {ARGV[1]}
for i = 1, rules do fields[i + 1] = ARGV[3 + 3 * i] end
local values = call('HMGET', key, unpack(fields))

if number == 0 or ARGV[first] ~= 't' or first ~= 6 + 3 * rules or #ARGV ~= first + 3 + 5 * rules
  or values[1] and tonumber(match(values[1], '^%d+') or 0) >= number then
  return whole(now, values, fields)
end

local lease, grid = tonumber(ARGV[first + 1]), tonumber(ARGV[first + 2])
local to = math.ceil((now + lease) / grid) * grid
local out, set, admitted = {fmt('A %d', now), '1', '0'}, {}, true
local lapse, ends = 0, now + 600000
local p = first + 4
for i = 1, rules do
  local kind, param, value = ARGV[4 + 3 * i], ARGV[5 + 3 * i], values[i + 1]
  local flags, limit, need, used, hold = ARGV[p] % 8, ARGV[p + 1], ARGV[p + 2], ARGV[p + 3], ARGV[p + 4]
  if kind == 'b' or #need > 15 or #used > 15 or #hold > 15 then return whole(now, values, fields) end
  used, hold = tonumber(used), tonumber(hold)

  -- The counter as it is.
  local start, was, prev, rest, len = 0, 0, 0, '', 0
  if value then
    start, was, prev, rest = match(value, '^(%d+) (%-?%d+) (%-?%d+) %d+(.*)$')
    if not start or #was > 15 or #prev > 15 then return whole(now, values, fields) end
    start, was, prev = tonumber(start), tonumber(was), tonumber(prev)
  end
  if kind == 'n' then
    start, was, prev, used = 0, 0, 0, 0
  else
    local begins
    if kind == 'c' then
      local a, b = match(param, '^%-?%d+ (%d+) (%d+)')
      if not a then return whole(now, values, fields) end
      begins, b = tonumber(a), tonumber(b)
      if now < begins or now >= b then return whole(now, values, fields) end
      len = b - begins
    else
      len = tonumber(param)
      begins = now - now % len
    end
    if begins > start then
      prev = (kind == 'r' and begins - start == len) and was or 0
      start, was = begins, 0
    end
  end

  -- What is held, and will be.
  local held, holds, last = 0, '', 0
  local mine = hold
  if rest ~= '' then
    for d, a in string.gmatch(rest, '(%d+) (%d+)') do
      if #a > 15 then return whole(now, values, fields) end
      local at, n = tonumber(d), tonumber(a)
      if at > now then
        held = held + n
        if lapse == 0 or at < lapse then lapse = at end
        if at == to then
          mine = mine + n
        else
          holds = holds .. ' ' .. d .. ' ' .. a
          if at > last then last = at end
        end
      end
    end
    if held > 4e15 then return whole(now, values, fields) end
  end

  local sum = was
  if prev ~= 0 and kind == 'r' then
    local part = prev * (start + len - (now > start and now or start))
    if prev < 0 or part >= 9e15 then return whole(now, values, fields) end
    sum = sum + floor(part / len)
  end
  if flags % 2 == 0 then sum = sum + held end
  -- A limit of more digits is compared rightly, for the sum is below 7*10^15.
  if flags < 2 and sum + tonumber(need) > tonumber(limit) then admitted = false end
  out[3 + i] = fmt('%d %d %d %d', start, was, prev, held)

  if admitted and (used ~= 0 or hold ~= 0) then
    was = was + used
    local lives = 0
    if was ~= 0 or prev ~= 0 then lives = floor((kind == 'r' and 2 * len or len) / 1000 + 1) end
    if mine > 0 then
      holds = holds .. fmt(' %d %d', to, mine)
      if to > last then last = to end
    end
    if holds == '' and lives == 0 or not value and number % 16 == 0 then return whole(now, values, fields) end
    if start + lives * 1000 > last then last = start + lives * 1000 end
    if last > ends then ends = last end
    set[#set + 1] = fields[i + 1]
    set[#set + 1] = fmt('%d %d %d %d', start, was, prev, lives) .. holds
  end
  p = p + 5
end
out[3] = fmt('%d', lapse)

if not admitted then
  out[2] = '0'
elseif #set > 0 then
  set[#set + 1] = ARGV[1]
  set[#set + 1] = fmt('%d %d 1', number, now)
  if ARGV[5] ~= '' and not values[1] then
    set[#set + 1], set[#set + 2] = 'n', ARGV[5]
  end
  call('HSET', key, unpack(set))
  local ttl = ends - now
  if call('PTTL', key) < ttl then call('PEXPIRE', key, fmt('%d', ttl + floor(ttl / 8))) end
end
return table.concat(out, ' ')
