<?php
// The front controller: SCRIPT_FILENAME names this file, whatever path is asked for.

declare(strict_types=1);

require __DIR__ . '/lib/failures.php';
require __DIR__ . '/lib/http.php';
require __DIR__ . '/lib/pages.php';

answer($_SERVER['REQUEST_METHOD'], $_SERVER['PATH_INFO'] ?? '/');
