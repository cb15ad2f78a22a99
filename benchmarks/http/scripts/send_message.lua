-- SQS SendMessage with 256 bytes, in the JSON protocol. The argument is the queue's URL.
function init(args)
  wrk.method = "POST"
  wrk.path = "/"
  wrk.body = '{"QueueUrl":"' .. args[1] .. '","MessageBody":"' .. string.rep("x", 256) .. '"}'
  wrk.headers["Content-Type"] = "application/x-amz-json-1.0"
  wrk.headers["X-Amz-Target"] = "AmazonSQS.SendMessage"
  wrk.headers["Authorization"] =
    "AWS4-HMAC-SHA256 Credential=bench/20300101/us-east-1/sqs/aws4_request, " ..
    "SignedHeaders=host, Signature=0"
  send = wrk.format()
end

function request()
  return send
end
