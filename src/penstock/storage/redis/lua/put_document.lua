#!lua flags=allow-oom
-- Replaces a document that has a certain version, and tells who follows it.
--
-- KEYS[1]  the document's hash
-- ARGV[1]  the version that it must have; empty if there must be none
-- ARGV[2]  the version that it gets
-- ARGV[3]  its content
-- Answers  1 if it is done, 0 if it has another version
if (redis.call('HGET', KEYS[1], 'version') or '') ~= ARGV[1] then
  return 0
end
redis.call('HSET', KEYS[1], 'version', ARGV[2], 'content', ARGV[3])
redis.call('PUBLISH', KEYS[1] .. ':news', '*')
return 1
