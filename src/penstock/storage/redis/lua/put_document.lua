#!lua flags=allow-oom
-- Replaces a document if it has the expected version, and notifies the servers that follow it.
--
-- KEYS[1]  the document's hash
-- ARGV[1]  the expected version; empty if there must be no document
-- ARGV[2]  the new version
-- ARGV[3]  the new content
-- Returns  1 if it was replaced, 0 if it has another version
if (redis.call('HGET', KEYS[1], 'version') or '') ~= ARGV[1] then
  return 0
end
redis.call('HSET', KEYS[1], 'version', ARGV[2], 'content', ARGV[3])
redis.call('PUBLISH', KEYS[1] .. ':news', '*')
return 1
