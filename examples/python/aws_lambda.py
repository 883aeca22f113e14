"""A handler of AWS Lambda behind API Gateway, unchanged."""

import json


def lambda_handler(event, context):
    name = (event.get("queryStringParameters") or {}).get("name", "world")
    if event["requestContext"]["http"]["method"] != "GET":
        return {"statusCode": 405, "headers": {"Allow": "GET"}}
    return {
        "statusCode": 200,
        "headers": {"Content-Type": "application/json", "X-Request-Id": context.aws_request_id},
        "body": json.dumps({"hello": name, "path": event["rawPath"]}),
    }
