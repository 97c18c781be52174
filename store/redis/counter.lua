-- A counter is a field of the entity's hash: "start used prev life", and for each
-- deadline at which something held lapses, the deadline and how much. life is in
-- how many seconds from start the rest says nothing any more. What it means is
-- said where the same is done in Go: at store/internal/counter.

-- roll brings a counter to the instant at. Windows are always rolled to now,
-- buckets to the instant of each charge, in their order.
local function refill(c, at)
  local elapsed = at - c.start
  if elapsed <= 0 then return end
  c.start = at
  local missing = abs(c.used)
  -- Far more has come back than is missing, or nothing is: no need to divide.
  if missing == 0 or elapsed * (near(c.refill) / c.len) > near(missing) * 1.000001 + 2 then
    c.used, c.prev = 0, 0
    return
  end
  local back, rest = share(c.refill, elapsed, c.prev, c.len)
  if not more(missing, back) then
    c.used, c.prev = 0, 0
    return
  end
  c.prev = rest
  if more(c.used, 0) then c.used = minus(c.used, back) else c.used = add(c.used, back) end
end

local function roll(c, now)
  local start
  if c.kind == 'c' then
    local a, b, d, e = match(c.param, '^(%-?%d+) (%-?%d+) (%-?%d+) (%-?%d+)$')
    a, b, d, e = tonumber(a), tonumber(b), tonumber(d), tonumber(e)
    c.off = now < a or now >= e
    if now < b then start, c.len = a, b - a
    elseif now < d then start, c.len = b, d - b
    else start, c.len = d, e - d end
  else
    start = now - now % c.len
  end
  if start <= c.start then return end
  c.prev = (c.kind == 'r' and start - c.start == c.len) and c.used or 0
  c.start, c.used = start, 0
end

-- load makes the counter of a rule from its field, which may be absent. What
-- cannot be read is as if it were not there.
local function load(field, kind, param, value, now)
  local c = {field = field, kind = kind, param = param, start = 0, used = 0, prev = 0, held = 0, first = 0, stored = value}
  if kind == 'b' then
    local len, back = match(param, '^(%d+) (%d+)$')
    c.len, c.refill = tonumber(len), parse(back)
  elseif kind ~= 'c' and kind ~= 'n' then
    c.len = tonumber(param)
  end
  if value then
    local start, used, prev, rest = match(value, '^(%d+) (%-?%d+) (%-?%d+) %d+(.*)$')
    if start then
      c.start, c.used, c.prev = tonumber(start), parse(used), parse(prev)
      if rest ~= '' then
        c.holds = {}
        for deadline, amount in gmatch(rest, '(%d+) (%d+)') do
          deadline = tonumber(deadline)
          if deadline > now then
            amount = parse(amount)
            c.holds[deadline] = amount
            c.held = add(c.held, amount)
            if c.first == 0 or deadline < c.first then c.first = deadline end
          end
        end
      end
    end
  end
  if kind == 'n' then
    c.start, c.used, c.prev = 0, 0, 0
  elseif kind ~= 'b' then
    roll(c, now)
  end
  return c
end

local function level(c, now)
  if c.kind ~= 'r' or c.prev == 0 then return c.used end
  local left = c.start + c.len - (now > c.start and now or c.start)
  if more(c.prev, 0) then return add(c.used, (share(c.prev, left, 0, c.len))) end
  local q, r = share(abs(c.prev), left, 0, c.len)
  if r > 0 then q = add(q, 1) end
  return minus(c.used, q)
end

-- charge is for amounts used at now, or granted.
local function charge(c, amount)
  if c.kind == 'n' then return end
  local before = c.used
  c.used = add(before, amount)
  if c.kind == 'b' and (more(before, 0) ~= more(c.used, 0) or more(0, before) ~= more(0, c.used)) then
    c.prev = 0
  end
  c.dirty = true
end

-- late is for what was used age milliseconds ago: it counts where the window that
-- it was used in still does.
local function late(c, now, age, amount)
  if c.kind == 'n' then return end
  if c.kind == 'b' then
    refill(c, now - age)
    return charge(c, amount)
  end
  local at = (now > c.start and now or c.start) - age
  if at >= c.start then
    c.used, c.dirty = add(c.used, amount), true
  elseif c.kind == 'r' and at >= c.start - c.len then
    c.prev, c.dirty = add(c.prev, amount), true
  end
end

-- giveback undoes a part of what was charged in the window that began at start.
local function giveback(c, at, start, amount)
  if c.kind == 'b' then
    refill(c, at)
    return charge(c, minus(0, least(amount, most(0, c.used))))
  end
  if c.kind == 'n' then return end
  if start == c.start then
    c.used, c.dirty = minus(c.used, amount), true
  elseif c.kind == 'r' and start == c.start - c.len then
    c.prev, c.dirty = minus(c.prev, amount), true
  end
end

local function hold(c, deadline, amount)
  c.holds = c.holds or {}
  c.holds[deadline] = add(c.holds[deadline] or 0, amount)
  c.held, c.dirty = add(c.held, amount), true
  if c.first == 0 or deadline < c.first then c.first = deadline end
end

local function release(c, deadline, amount)
  local there = c.holds and c.holds[deadline]
  if not there then return end
  amount = least(amount, there)
  there = minus(there, amount)
  c.holds[deadline] = more(there, 0) and there or nil
  c.held, c.dirty = most(0, minus(c.held, amount)), true
end

-- life returns in how many seconds from its start a counter says nothing.
local function life(c)
  local ms
  if c.used == 0 and (c.prev == 0 or c.kind == 'b') then return 0 end
  if c.kind == 'r' then
    ms = 2 * c.len
  elseif c.kind == 'b' then
    -- It is a bound, to which a thousandth is added for what near leaves out.
    local back = near(c.refill)
    ms = back > 0 and near(abs(c.used)) / back * c.len * 1.001 or 1e18
  else
    ms = c.len
  end
  ms = ms / 1000 + 1
  return floor(ms < 632448000 and ms or 632448000)
end

-- value returns the field's new content, nil if there is nothing to say, and
-- until when it has to be kept.
local function value(c)
  local lives = life(c)
  local s, ends = nil, c.start + lives * 1000
  if c.holds then
    for deadline, amount in pairs(c.holds) do
      s = (s or '') .. fmt(' %d ', deadline) .. text(amount)
      if deadline > ends then ends = deadline end
    end
  end
  if not s and lives == 0 then return nil, 0 end
  if type(c.used) == 'number' and type(c.prev) == 'number' then
    return fmt('%d %d %d %d', c.start, c.used, c.prev, lives) .. (s or ''), ends
  end
  return fmt('%d ', c.start) .. text(c.used) .. ' ' .. text(c.prev) .. fmt(' %d', lives) .. (s or ''), ends
end
