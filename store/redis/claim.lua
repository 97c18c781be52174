-- Takes a replica number, or keeps it. KEYS[1] is the number's lease, ARGV[1] the
-- token of who asks, ARGV[2] how long it is to be, in milliseconds. The reply is
-- the time in microseconds, with " kept" if the number was the asker's, or nothing if it is
-- another's.
local owner = redis.call('GET', KEYS[1])
if owner and owner ~= ARGV[1] then return '' end
local time = redis.call('TIME')
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return string.format('%d', time[1] * 1000000 + time[2]) .. (owner and ' kept' or '')
