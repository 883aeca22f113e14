<?php
// What goes wrong becomes an error page, and a line in the function's log.

declare(strict_types=1);

set_exception_handler(function (Throwable $thrown): void {
    error_log($thrown::class . ': ' . $thrown->getMessage());
    // What was written of another page is still in the buffer (php.ini).
    while (ob_get_level() > 0) {
        ob_end_clean();
    }
    page(500, 'Something went wrong', 'and the log says what');
});
