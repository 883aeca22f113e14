def answer(body):
    return "text/plain", b"hello\n"
