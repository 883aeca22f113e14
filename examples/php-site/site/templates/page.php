<!DOCTYPE html>
<html lang="en">
<meta charset="utf-8">
<title><?= $escaped($title) ?></title>
<link rel="stylesheet" href="<?= $escaped($base) ?>/style.css">
<h1><?= $escaped($title) ?></h1>
<p><?= $escaped($text) ?></p>
<?= $body ?>

</html>
