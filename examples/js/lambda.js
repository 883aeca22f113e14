// A handler of AWS Lambda behind an HTTP API, unchanged.

export const handler = async (event, context) => {
  const { method, path } = event.requestContext.http;
  const name = event.queryStringParameters?.name ?? "world";
  console.log(`${context.awsRequestId} ${method} ${path}`);

  if (method === "POST") {
    if (event.isBase64Encoded) return { statusCode: 415, body: "only text" };
    return { statusCode: 201, body: event.body ?? "" };
  }
  return {
    statusCode: 200,
    headers: { "content-type": "application/json" },
    cookies: [`name=${encodeURIComponent(name)}; HttpOnly`],
    body: JSON.stringify({ message: `Hello, ${name}!` }),
  };
};
