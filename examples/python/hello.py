def handler(request):
    return f"Hello from {request.url}\n"
