// Handlers in the form of AWS Lambda, with the events of API Gateway's HTTP APIs (payload format 2.0).

// The time limit that a script cannot know, in milliseconds: the node's default.
const LAMBDA_TIME = 10_000;

const MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

function isTextType(type) {
  const essence = type.split(";")[0].trim().toLowerCase();
  return essence.startsWith("text/") || essence.endsWith("+json") || essence.endsWith("+xml")
    || ["application/json", "application/xml", "application/javascript", "application/x-www-form-urlencoded"].includes(essence);
}

function logTime(date) {
  const two = (number) => String(number).padStart(2, "0");
  return `${two(date.getUTCDate())}/${MONTHS[date.getUTCMonth()]}/${date.getUTCFullYear()}:`
    + `${two(date.getUTCHours())}:${two(date.getUTCMinutes())}:${two(date.getUTCSeconds())} +0000`;
}

const base64Of = btoa;
const fromBase64 = atob;

async function lambdaEvent(request, requestId) {
  const url = new URL(request.url);
  const headers = {};
  let cookies;
  for (const [name, value] of fieldsOf(request.headers)) {
    if (name === "cookie") cookies = value.split(/;\s*/);
    else headers[name] = Object.hasOwn(headers, name) ? `${headers[name]},${value}` : value;
  }
  const event = { version: "2.0", routeKey: "$default", rawPath: url.pathname, rawQueryString: url.search.slice(1) };
  if (cookies !== undefined) event.cookies = cookies;
  event.headers = headers;
  if (url.search.length > 1) {
    const query = {};
    for (const [name, value] of url.searchParams) query[name] = Object.hasOwn(query, name) ? `${query[name]},${value}` : value;
    event.queryStringParameters = query;
  }
  const now = new Date();
  event.requestContext = {
    accountId: "anonymous",
    apiId: native.functionName(),
    domainName: url.host,
    domainPrefix: url.hostname.split(".")[0],
    http: { method: request.method, path: url.pathname, protocol: "HTTP/1.1", sourceIp: "", userAgent: headers["user-agent"] ?? "" },
    requestId,
    routeKey: "$default",
    stage: "$default",
    time: logTime(now),
    timeEpoch: now.getTime(),
  };
  event.isBase64Encoded = false;
  if (isTextType(headers["content-type"] ?? "")) {
    const body = await request.text();
    if (body !== "") event.body = body;
  } else {
    const body = await request.bytes();
    if (body.length > 0) {
      event.body = base64Of(native.latin1(body));
      event.isBase64Encoded = true;
    }
  }
  return event;
}

function lambdaContext(requestId) {
  const name = native.functionName();
  const end = native.now() + LAMBDA_TIME;
  return {
    functionName: name,
    functionVersion: "$LATEST",
    memoryLimitInMB: String(Math.floor(native.memoryLimit() / (1 << 20))),
    awsRequestId: requestId,
    logGroupName: name,
    logStreamName: requestId,
    callbackWaitsForEmptyEventLoop: true,
    getRemainingTimeInMillis: () => Math.max(0, Math.round(end - native.now())),
  };
}

function lambdaResponse(result) {
  const isResponse = typeof result === "object" && result !== null && result.statusCode !== undefined;
  if (!isResponse) {
    const body = typeof result === "string" ? result : JSON.stringify(result ?? null);
    return new Response(body, { headers: { "content-type": "application/json" } });
  }
  const { statusCode, headers: fields, cookies, body, isBase64Encoded } = result;
  const headers = new Headers();
  for (const [name, value] of Object.entries(fields ?? {})) headers.append(name, String(value));
  for (const cookie of cookies ?? []) headers.append("set-cookie", String(cookie));
  if (body !== undefined && body !== null && typeof body !== "string") {
    throw new TypeError(`the body of a Lambda response is a string, not ${inspect(body, 0)}: use JSON.stringify`);
  }
  let content = body ?? "";
  if (isBase64Encoded) content = Uint8Array.from(fromBase64(content), (character) => character.charCodeAt(0));
  const status = Number(statusCode);
  return new Response(NO_BODY.has(status) ? null : content, { status, headers });
}

// Returns the handler of requests for one of Lambda.
function lambdaHandler(run) {
  return async (request) => {
    const requestId = request.headers.get("x-request-id") ?? crypto.randomUUID();
    const event = await lambdaEvent(request, requestId);
    const context = lambdaContext(requestId);
    return lambdaResponse(await new Promise((resolve, reject) => {
      const callback = (error, result) => (error === undefined || error === null ? resolve(result) : reject(error));
      const given = run(event, context, callback);
      // A function with a callback answers by it, unless it returns a promise.
      if (typeof given?.then === "function" || run.length < 3) resolve(given);
    }));
  };
}
