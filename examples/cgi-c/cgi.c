/* A CGI program (RFC 3875) in C: the request arrives in environment variables
 * and on standard input, the response leaves on standard output. */

#include <stdio.h>
#include <stdlib.h>

/* An absent variable reads as an empty one. */
static const char *variable(const char *name) {
    const char *value = getenv(name);
    return value ? value : "";
}

int main(void) {
    /* Headers first; an empty line ends them. */
    printf("Content-Type: text/plain\n\n");

    printf("REQUEST_METHOD %s\n", variable("REQUEST_METHOD"));
    printf("PATH_INFO %s\n", variable("PATH_INFO"));
    printf("QUERY_STRING %s\n", variable("QUERY_STRING"));
    printf("CONTENT_LENGTH %s\n\n", variable("CONTENT_LENGTH"));

    /* CONTENT_LENGTH says how much body there is to read. */
    unsigned long long left = strtoull(variable("CONTENT_LENGTH"), NULL, 10);
    char chunk[4096];
    while (left > 0) {
        size_t want = left < sizeof chunk ? (size_t)left : sizeof chunk;
        size_t got = fread(chunk, 1, want, stdin);
        if (got == 0)
            break;
        fwrite(chunk, 1, got, stdout);
        left -= got;
    }
    return 0;
}
