-- Gives a replica number back. KEYS[1] is its lease, ARGV[1] the owner's token.
if redis.call('GET', KEYS[1]) == ARGV[1] then redis.call('DEL', KEYS[1]) end
return ''
