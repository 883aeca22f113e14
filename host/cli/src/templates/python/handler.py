from faasw import Request, Response

# What is out here runs once, when the function is deployed.
GREETINGS = {"en": "Hello", "de": "Hallo", "fr": "Bonjour"}


def handler(request: Request) -> Response:
    # Each request runs this, in a fork of what was there then.
    greeting = GREETINGS.get(request.query.get("lang", "en"), "Hello")
    return Response(f"{greeting}, {request.query.get('name', 'you')}!\n")
