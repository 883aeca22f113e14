<?php
// From a method and a path to the page that answers, and what pages answer with.

declare(strict_types=1);

function answer(string $method, string $path): void
{
    // Answers to HEAD are GET's, without their body.
    $method = $method === 'HEAD' ? 'GET' : $method;
    $allowed = [];
    foreach (PAGES as [$of, $pattern, $page]) {
        if (preg_match("#^$pattern\$#D", $path, $parts) !== 1) {
            continue;
        }
        if ($of === $method) {
            $page(...array_slice($parts, 1));
            return;
        }
        $allowed[] = $of;
    }
    if ($allowed !== []) {
        header('Allow: ' . implode(', ', $allowed));
        page(405, 'Not with this method', "$path takes " . implode(', ', $allowed));
    } elseif (!file_of_the_site($path)) {
        page(404, 'Not found', "nothing is at $path");
    }
}

/** What is in public/, as it is. */
function file_of_the_site(string $path): bool
{
    $public = __DIR__ . '/../public';
    $file = realpath($public . $path);
    // A path may try to lead out of the folder.
    if ($file === false || !is_file($file) || !str_starts_with($file, realpath($public) . '/')) {
        return false;
    }
    $types = ['css' => 'text/css', 'svg' => 'image/svg+xml', 'txt' => 'text/plain'];
    header('Content-Type: ' . ($types[pathinfo($file, PATHINFO_EXTENSION)] ?? 'application/octet-stream'));
    header('Content-Length: ' . filesize($file));
    readfile($file);
    return true;
}

function json(int $status, mixed $value): void
{
    http_response_code($status);
    header('Content-Type: application/json');
    echo json_encode($value, JSON_UNESCAPED_SLASHES | JSON_THROW_ON_ERROR), "\n";
}

/** A page out of the template. */
function page(int $status, string $title, string $text, string $body = ''): void
{
    http_response_code($status);
    // The path that the function has on its node: empty where it has a host of its own.
    $base = $_SERVER['SCRIPT_NAME'];
    $escaped = fn (string $text): string => htmlspecialchars($text, ENT_QUOTES | ENT_SUBSTITUTE);
    require __DIR__ . '/../templates/page.php';
}
