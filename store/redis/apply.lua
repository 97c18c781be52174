-- Applies one batch of a replica to an entity: first what has to be settled,
-- renewed and adjusted, then the calls that ask to be admitted, each of which
-- finds what those before it have taken.
--
-- KEYS[1] is the entity's hash. ARGV:
--   1 the field of the replica's last batch
--   2 the number of this batch in the replica's sequence; 0 only reads
--   3 how many rules follow, and 4 at which argument the calls start
--   5 the consumer's name, where the key does not say it
--   per rule: field, kind (n none, c calendar, f fixed, r rolling, b bucket), and
--     c "the edges before, at the start, at the end and after", f r length, b "length refill"
--   "d" if the batch may have been sent before
--   then any of
--     s age n {rule used nback {start amount} nrelease {deadline amount}}   settle
--     m lease grid n {rule deadline amount}                                 renew
--   and of the calls
--     t lease grid n {rule*8+flags limit need charge hold [most]}           take
--       flags: 1 holds do not count, 2 shadow, 4 most is given
--     p n {rule}                                                            peek
--     x                                                                     nobody waits for it
--
-- A batch that is a single take, as most are, is sent shorter where its amounts have at
-- most 15 digits and none of its rules is a bucket:
--   1 2 as above
--   3 "p", and a letter for the kind of each rule
--   4 numbers, each the eight bytes of a double: lease, grid; per rule flags, limit
--     in two as at amount.lua, need, charge, hold, and of its window the start and the
--     end, or the length and 0; then per rule the edge before and the one after, or 0
--   5 the consumer's name, where the key does not say it
--   then the field of each rule
--
-- The reply is words: "A now", or "D then" if the batch was applied before, or
-- "F last" if the replica is past it, or "T now" if now is in none of the windows of
-- the calendar that were sent, which ends it without any effect: a clock has been
-- put forward or back. Then follows of each call "1" or "0" for admitted or
-- not, with ":" and what was got of each take with most; when the first of what is
-- held lapses, or 0; and of each take the start, used, prev and held that it found,
-- or if D, that there are now, with ":" and the limit where the entity has one of its
-- own; see edit.lua. What is sent shorter may also be answered by "V now 1"
-- or 0 for not admitted, and lines with the counters as they were stored.
--
-- All is read and parsed before the first write, since a script that fails is not
-- undone.

local call, concat = redis.call, table.concat

-- longer makes the usual arguments of the shorter ones.
local function longer(short)
  local n = #short[3] - 1
  local P = {struct.unpack('<' .. string.rep('d', 2 + 10 * n), short[4])}
  local long = {short[1], short[2], fmt('%d', n), fmt('%d', 6 + 3 * n), short[5]}
  for i = 1, n do
    local at, kind = 8 * i, sub(short[3], i + 1, i + 1)
    local param = ''
    if kind == 'c' then
      local edges = 1 + 8 * n + 2 * i
      param = fmt('%d %d %d %d', P[edges], P[at + 1], P[at + 2], P[edges + 1])
    elseif kind ~= 'n' then
      param = fmt('%d', P[at + 1])
    end
    long[3 + 3 * i], long[4 + 3 * i], long[5 + 3 * i] = short[5 + i], kind, param
  end
  local at = #long
  long[at + 1], long[at + 2], long[at + 3], long[at + 4] = 't', fmt('%d', P[1]), fmt('%d', P[2]), fmt('%d', n)
  for i = 1, n do
    local from, to = 8 * i - 5, at + 5 * i
    long[to] = fmt('%d', 8 * i + P[from])
    long[to + 1] = text(norm(P[from + 1], P[from + 2]))
    for j = 2, 4 do long[to + j] = fmt('%d', P[from + 1 + j]) end
  end
  return long
end

if byte(ARGV[3]) == 112 then ARGV = longer(ARGV) end
local key, number, rules, first = KEYS[1], tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])

local before
if number > 0 and values[1] then
  local last, rest = match(values[1], '^(%d+)(.*)$')
  last = tonumber(last)
  if last and last > number then return fmt('F %d', last) end
  if last == number then before = rest end
end

local fields, C = {ARGV[1]}, {}
for i = 1, rules do
  local p = 3 + 3 * i
  fields[i + 1] = ARGV[p]
  C[i] = load(ARGV[p], ARGV[p + 1], ARGV[p + 2], values[i + 1], now)
  if C[i].off then return fmt('T %d', now) end
end

-- Limits of the entity's own.
local own = values[rules + 2]
if own then
  for i = 1, rules do
    local _, at = string.find(own, '\n' .. C[i].field .. ' ', 1, true)
    if at then C[i].own = match(own, '^%d+', at + 1) end
  end
end

local p = 6 + 3 * rules
local outcome, timed = {}, false

-- What was sent first may come after this. So a batch that may have been sent before
-- is remembered even if it changes nothing.
local doubted = ARGV[p] == 'd'
if doubted then p = p + 1 end

local function deadline()
  local lease, grid = tonumber(ARGV[p + 1]), tonumber(ARGV[p + 2])
  timed = true
  return math.ceil((now + lease) / grid) * grid
end

local function settle()
  local age, n = tonumber(ARGV[p + 1]), tonumber(ARGV[p + 2])
  p = p + 3
  for _ = 1, n do
    local c, amount = C[tonumber(ARGV[p])], parse(ARGV[p + 1])
    if amount ~= 0 then late(c, now, age, amount) end
    local backs = tonumber(ARGV[p + 2])
    p = p + 3
    for _ = 1, backs do
      giveback(c, now - age, tonumber(ARGV[p]), parse(ARGV[p + 1]))
      p = p + 2
    end
    local releases = tonumber(ARGV[p])
    p = p + 1
    for _ = 1, releases do
      release(c, tonumber(ARGV[p]), parse(ARGV[p + 1]))
      p = p + 2
    end
  end
end

local function renew()
  local to, n = deadline(), tonumber(ARGV[p + 3])
  p = p + 4
  for _ = 1, n do
    local c, amount = C[tonumber(ARGV[p])], parse(ARGV[p + 2])
    release(c, tonumber(ARGV[p + 1]), amount)
    hold(c, to, amount)
    p = p + 3
  end
end

local out = {}

local function show(c)
  if type(c.used) == 'number' and type(c.prev) == 'number' and type(c.held) == 'number' then
    out[#out + 1] = fmt('%d %d %d %d', c.start, c.used, c.prev, c.held)
  else
    out[#out + 1] = fmt('%d ', c.start) .. text(c.used) .. ' ' .. text(c.prev) .. ' ' .. text(c.held)
  end
  if c.own then out[#out] = out[#out] .. ':' .. c.own end
end

local function take(done)
  local to, n = deadline(), tonumber(ARGV[p + 3])
  p = p + 4
  local from, admitted, lapse = p, true, 0
  local head = #out + 1
  out[head], out[head + 1] = '', ''
  for _ = 1, n do
    local what = tonumber(ARGV[p])
    local flags = what % 8
    local c = C[(what - flags) / 8]
    if c.kind == 'b' then refill(c, now) end
    if not done then
      local sum = level(c, now)
      if flags % 2 == 0 then sum = add(sum, c.held) end
      if flags % 4 < 2 and more(add(sum, parse(ARGV[p + 2])), parse(c.own or ARGV[p + 1])) then admitted = false end
    end
    if c.first > 0 and (lapse == 0 or c.first < lapse) then lapse = c.first end
    show(c)
    p = p + (flags < 4 and 5 or 6)
  end
  out[head + 1] = fmt('%d', lapse)
  if done or not admitted then
    out[head] = done or '0'
    return
  end
  local after, word = p, '1'
  p = from
  for _ = 1, n do
    local what = tonumber(ARGV[p])
    local flags = what % 8
    local c, used, got = C[(what - flags) / 8], parse(ARGV[p + 3]), parse(ARGV[p + 4])
    if flags >= 4 then
      local free = minus(minus(parse(c.own or ARGV[p + 1]), level(c, now)), used)
      if flags % 2 == 0 then free = minus(free, c.held) end
      got = most(got, least(free, parse(ARGV[p + 5])))
      word = word .. ':' .. text(got)
      p = p + 1
    end
    if used ~= 0 then charge(c, used) end
    if got ~= 0 then hold(c, to, got) end
    p = p + 5
  end
  p = after
  out[head] = word
end

local function peek()
  local n = tonumber(ARGV[p + 1])
  out[#out + 1] = '0'
  out[#out + 1] = '0'
  for i = p + 2, p + 1 + n do
    local c = C[tonumber(ARGV[i])]
    if c.kind == 'b' then refill(c, now) end
    show(c)
  end
  p = p + 2 + n
end

if before then
  local words = gmatch(before, '%S+')
  out[1] = 'D ' .. (words() or '0')
  p = first
  while ARGV[p] do
    local word = words() or '0'
    if ARGV[p] == 't' then
      take(word)
    else
      out[#out + 1] = word
      out[#out + 1] = '0'
      p = p + 1
    end
  end
  return concat(out, ' ')
end

out[1] = fmt('A %d', now)
while ARGV[p] do
  local op = ARGV[p]
  if op == 't' then
    local at = #out + 1
    take(false)
    outcome[#outcome + 1] = out[at]
  elseif op == 's' then
    settle()
  elseif op == 'm' then
    renew()
  elseif op == 'p' then
    peek()
  else
    out[#out + 1] = '0'
    out[#out + 1] = '0'
    outcome[#outcome + 1] = '0'
    p = p + 1
  end
end

if number == 0 then return concat(out, ' ') end

local set, gone, fresh = {}, {}, false
local ends = now + 600000 -- what is here is of use for a batch that is sent again
for i = 1, rules do
  local c = C[i]
  if c.dirty then
    local s, till = value(c)
    if s then
      set[#set + 1], set[#set + 2] = c.field, s
      if till > ends then ends = till end
      fresh = fresh or not c.stored
    elseif c.stored then
      gone[#gone + 1] = c.field
    end
  end
end
if #set == 0 and #gone == 0 and not doubted then
  if own and call('PTTL', key) >= 0 then call('PERSIST', key) end
  return concat(out, ' ')
end

set[#set + 1] = ARGV[1]
set[#set + 1] = fmt('%d', number) .. (timed and fmt(' %d ', now) .. concat(outcome, ' ') or '')
if ARGV[5] ~= '' and not values[1] then
  set[#set + 1], set[#set + 2] = 'n', ARGV[5]
end

-- Counters of rules that are in no config any more, and replicas that have not
-- been heard of for forty days, are looked for once in a while: at one in sixteen of
-- the numbers, which are even.
if (fresh or not values[1]) and number % 32 == 0 and call('HLEN', key) > 64 then
  local all = call('HGETALL', key)
  local touched = {}
  for i = 1, #fields do touched[fields[i]] = true end
  for i = 1, #all, 2 do
    local f, v = all[i], all[i + 1]
    if not touched[f] and f ~= 'n' and f ~= 'o' then
      if byte(f) == 113 then
        local last = tonumber(match(v, '^%d+') or 0)
        if last / 1000 + 3456000000 < now then gone[#gone + 1] = f end
      else
        local start, lives, rest = match(v, '^(%d+) %-?%d+ %-?%d+ (%d+)(.*)$')
        local till = start and start + lives * 1000 or 0
        for d in gmatch(rest or '', ' (%d+) %d+') do
          d = tonumber(d)
          if d > till then till = d end
        end
        if till <= now then gone[#gone + 1] = f end
      end
    end
  end
end

-- Setting comes first: a server short of memory refuses that, and not what
-- follows a deletion.
call('HSET', key, unpack(set))
local need = ends - now
local left = call('PTTL', key)
if not own then
  if left < need then call('PEXPIRE', key, fmt('%d', need + floor(need / 8))) end
elseif left >= 0 then
  -- A replica of a version that knows no limits of the entity's own has come by.
  call('PERSIST', key)
end
for i = 1, #gone, 1000 do
  call('HDEL', key, unpack(gone, i, math.min(i + 999, #gone)))
end
return concat(out, ' ')
