<?php
// The pages: a method, a pattern of a path, and what answers.

declare(strict_types=1);

const PAGES = [
    ['GET', '/', 'home'],
    ['POST', '/greet', 'greet'],
    ['POST', '/upload', 'upload'],
    ['POST', '/json', 'echo_json'],
    ['GET', '/books', 'books'],
    ['GET', '/books/(\d+)', 'book'],
    ['GET', '/cookie', 'cookie'],
    ['GET', '/old', 'moved'],
    ['GET', '/visits', 'visits'],
    ['GET', '/about', 'about'],
    ['GET', '/fail/(\w+)', 'fail'],
];

function home(): void
{
    page(200, 'A site in PHP', 'each request runs php-cgi in a microVM of its own', <<<'HTML'
        <form method="post" action="greet"><input name="name" placeholder="your name"><button>Greet</button></form>
        <form method="post" action="upload" enctype="multipart/form-data"><input type="file" name="file"><button>Upload</button></form>
        HTML);
}

function greet(): void
{
    $name = trim($_POST['name'] ?? '');
    $name === '' ? page(400, 'Who?', 'the form needs a name') : page(200, 'Hello', "hello, $name");
}

function upload(): void
{
    $file = $_FILES['file'] ?? null;
    if ($file === null || $file['error'] !== UPLOAD_ERR_OK) {
        json(400, ['error' => 'no file came', 'code' => $file['error'] ?? null]);
        return;
    }
    json(200, [
        'name' => $file['name'],
        'bytes' => filesize($file['tmp_name']),
        'sha256' => hash_file('sha256', $file['tmp_name']),
    ]);
}

function echo_json(): void
{
    try {
        $value = json_decode(file_get_contents('php://input'), true, 32, JSON_THROW_ON_ERROR);
        json(200, ['got' => $value]);
    } catch (JsonException $error) {
        json(400, ['error' => $error->getMessage()]);
    }
}

/** The database comes with the site. */
function database(): PDO
{
    return new PDO('sqlite:' . __DIR__ . '/../data/books.db', null, null, [
        PDO::ATTR_ERRMODE => PDO::ERRMODE_EXCEPTION,
        PDO::ATTR_DEFAULT_FETCH_MODE => PDO::FETCH_ASSOC,
    ]);
}

function books(): void
{
    $found = database()->prepare('SELECT id, title, author FROM book WHERE author LIKE ? ORDER BY id');
    $found->execute(['%' . ($_GET['author'] ?? '') . '%']);
    json(200, $found->fetchAll());
}

function book(string $id): void
{
    $found = database()->prepare('SELECT id, title, author FROM book WHERE id = ?');
    $found->execute([$id]);
    $book = $found->fetch();
    $book === false ? json(404, ['error' => "there is no book $id"]) : json(200, $book);
}

function cookie(): void
{
    $count = 1 + (int) ($_COOKIE['count'] ?? 0);
    setcookie('count', (string) $count, ['path' => '/', 'httponly' => true, 'samesite' => 'Lax']);
    json(200, ['count' => $count]);
}

function moved(): void
{
    header('Location: ' . $_SERVER['SCRIPT_NAME'] . '/about', true, 301);
}

/** Whatever a request leaves behind is gone with it: each of these is always 1. */
function visits(): void
{
    static $calls = 0;
    session_start();
    $session = $_SESSION['visits'] = 1 + ($_SESSION['visits'] ?? 0);
    $file = sys_get_temp_dir() . '/visits';
    file_put_contents($file, 'x', FILE_APPEND);
    $database = database();
    $database->exec("INSERT INTO visit DEFAULT VALUES");
    json(200, [
        'static' => ++$calls,
        'session' => $session,
        'file' => filesize($file),
        'database' => (int) $database->query('SELECT count(*) FROM visit')->fetchColumn(),
    ]);
}

function about(): void
{
    json(200, [
        'php' => PHP_VERSION,
        'extensions' => get_loaded_extensions(),
        'uri' => $_SERVER['REQUEST_URI'],
        'path' => $_SERVER['PATH_INFO'],
        'script' => $_SERVER['SCRIPT_NAME'],
        'query' => $_GET,
        'client' => $_SERVER['REMOTE_ADDR'],
        'ini' => php_ini_loaded_file(),
        'memory_limit' => ini_get('memory_limit'),
    ]);
}

/** What failing looks like. */
function fail(string $how): void
{
    echo 'the beginning of a page';
    switch ($how) {
        case 'exception':
            throw new RuntimeException('nobody catches this');
        case 'uncaught':
            // PHP says 500 by itself then, and exits with 255.
            restore_exception_handler();
            undefined_function();
        case 'endless':
            while (true) {
            }
        case 'memory':
            $all = [];
            while (true) {
                $all[] = str_repeat('x', 1 << 20);
            }
        default:
            page(404, 'Not found', "no way to fail is called $how");
    }
}
