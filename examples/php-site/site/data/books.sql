-- sqlite3 books.db < books.sql
CREATE TABLE book (id INTEGER PRIMARY KEY, title TEXT NOT NULL, author TEXT NOT NULL);
INSERT INTO book (title, author) VALUES
    ('Notes on the Analytical Engine', 'Ada Lovelace'),
    ('The Education of a Computer', 'Grace Hopper'),
    ('A Mathematical Theory of Communication', 'Claude Shannon'),
    ('Notes on Structured Programming', 'Edsger Dijkstra');
CREATE TABLE visit (id INTEGER PRIMARY KEY);
