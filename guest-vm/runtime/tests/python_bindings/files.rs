//! Temporary files, and files of the operator.

use crate::answer;
use crate::support::Kind;
use crate::support::scripts::asked;

#[test]
fn scripts_have_temporary_files_and_files_of_the_operator() {
    let text = "
import os, pathlib, shutil, tempfile
assert tempfile.gettempdir() == '/tmp'
EARLY = tempfile.NamedTemporaryFile('w', delete=False)
EARLY.write('early')
EARLY.close()
def refused(function, *args):
    try:
        function(*args)
    except OSError as error:
        return error.strerror
def handler(request):
    with tempfile.SpooledTemporaryFile(max_size=500_000) as file:
        for piece in request:
            file.write(piece)
        file.seek(0)
        size = len(file.read())
    with tempfile.TemporaryFile() as file:
        file.write(b'abc'), file.seek(1)
        assert file.read() == b'bc'
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, 'a', 'b.txt')
        path.parent.mkdir()
        path.write_text('one\\ntwo\\n', encoding='utf-8')
        with open(path, 'a+') as file:
            file.write('three\\n')
        shutil.copy('/app/a.py', folder)
        os.replace(path, path.with_suffix('.new'))
        listed = sorted(str(at.relative_to(folder)) for at in pathlib.Path(folder).rglob('*'))
        lines = path.with_suffix('.new').read_text().splitlines()
        assert os.stat(path.parent).st_mode and not path.exists()
    assert not os.path.exists(folder)
    given = pathlib.Path('/data/given.txt')
    before = given.read_text()
    given.write_text('changed')
    read_only = [refused(open, 'x', 'w'), refused(os.mkdir, '/app/x'), refused(os.unlink, 'a.py'),
        refused(os.rename, '/tmp', 'y')]
    return repr([size, listed, lines, open(EARLY.name).read(), before, given.read_text(),
        os.listdir('/data'), set(read_only)])
";
    let call = asked("/").method("POST").body(&vec![b'x'; 700_000]);
    let call = call.files("/data", &[(Kind::File, "given.txt", b"given")]);
    assert_eq!(
        answer(text, call),
        "[700000, ['a', 'a.py', 'a/b.new'], ['one', 'two', 'three'], 'early', \
         'given', 'changed', ['given.txt'], {'Read-only file system'}]"
    );
}

#[test]
fn a_database_may_be_a_file() {
    let text = "
import sqlite3
def handler(request):
    for turn in range(2):
        with sqlite3.connect('/tmp/books.db') as db:
            db.execute('create table if not exists books (title)')
            db.execute('insert into books values (?)', (f'Solaris {turn}',))
        db.close()
    with sqlite3.connect('/tmp/books.db') as db:
        return repr(list(db.execute('select * from books')))
";
    assert_eq!(answer(text, asked("/")), "[('Solaris 0',), ('Solaris 1',)]");
}
