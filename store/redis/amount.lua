-- Amounts are int64, but Lua's numbers are exact to 2^53 only. So an amount is a
-- number while it is below 9*10^15, and beyond that a pair {high, low} of
-- high*10^9 + low with 0 <= low < 10^9. Sums stop at the ends of int64.

local type, tonumber, floor, fmt = type, tonumber, math.floor, string.format
local sub, byte, match, gmatch = string.sub, string.byte, string.match, string.gmatch
local PLAIN, BASE = 9e15, 1e9
local MAX, MIN = {9223372036, 854775807}, {-9223372037, 145224192}

local function norm(hi, lo)
  if lo >= BASE then
    hi, lo = hi + 1, lo - BASE
  elseif lo < 0 then
    hi, lo = hi - 1, lo + BASE
  end
  if hi < 9000000 and hi >= -9000000 then return hi * BASE + lo end
  if hi > 9223372036 or hi == 9223372036 and lo > 854775807 then return MAX end
  if hi < -9223372037 or hi == -9223372037 and lo < 145224192 then return MIN end
  return {hi, lo}
end

local function split(a)
  if type(a) == 'table' then return a[1], a[2] end
  local hi = floor(a / BASE)
  return hi, a - hi * BASE
end

local function parse(s)
  if #s <= 15 then return tonumber(s) end
  local lo = tonumber(sub(s, -9))
  if byte(s) == 45 then return norm(-tonumber(sub(s, 2, -10)), -lo) end
  return norm(tonumber(sub(s, 1, -10)), lo)
end

local function text(a)
  if type(a) == 'number' then return fmt('%d', a) end
  local hi, lo = a[1], a[2]
  if hi >= 0 then return fmt('%d%09d', hi, lo) end
  if lo > 0 then hi, lo = hi + 1, BASE - lo end
  return fmt('-%d%09d', -hi, lo)
end

local function add(a, b)
  if type(a) == 'number' and type(b) == 'number' then
    local c = a + b
    if c < PLAIN and c > -PLAIN then return c end
  end
  local ah, al = split(a)
  local bh, bl = split(b)
  return norm(ah + bh, al + bl)
end

local function minus(a, b)
  if type(a) == 'number' and type(b) == 'number' then
    local c = a - b
    if c < PLAIN and c > -PLAIN then return c end
  end
  local ah, al = split(a)
  local bh, bl = split(b)
  return norm(ah - bh, al - bl)
end

-- more tells whether a > b.
local function more(a, b)
  if type(a) == 'number' and type(b) == 'number' then return a > b end
  local ah, al = split(a)
  local bh, bl = split(b)
  return ah > bh or ah == bh and al > bl
end

local function least(a, b) if more(a, b) then return b end return a end
local function most(a, b) if more(a, b) then return a end return b end
local function abs(a) if more(0, a) then return minus(0, a) end return a end

-- near is an amount as a number that may be off in its last digits.
local function near(a)
  if type(a) == 'number' then return a end
  return a[1] * BASE + a[2]
end

-- share returns (a*p + c) / d and the remainder. a is an amount, p, c and d are
-- numbers with c < d <= 4*10^11 and p <= 8*10^12; none is negative. It divides by
-- hand, in digits of base 1000, so that no step passes 2^53.
local function share(a, p, c, d)
  if type(a) == 'number' then
    local n = a * p + c
    if n < PLAIN then
      local q = floor(n / d)
      return q, n - q * d
    end
  end
  local hi, lo = split(a)
  local qh, ql, r = 0, 0, 0
  for i = 6, 0, -1 do
    local digit
    if i > 2 then
      digit = floor(hi / 1000 ^ (i - 3)) % 1000
    else
      digit = floor(lo / 1000 ^ i) % 1000
    end
    local n = r * 1000 + digit * p
    if i == 0 then n = n + c end
    local q = floor(n / d)
    r = n - q * d
    ql = ql * 1000 + q
    local carry = floor(ql / BASE)
    qh, ql = qh * 1000 + carry, ql - carry * BASE
  end
  return norm(qh, ql), r
end
