// A JSON API: books by their numbers, with a search. What is stored is part of the seed, so
// what one request changes no other one sees; a store is for what is to last.

const BOOKS = new Map(
  [
    { id: 1, title: "The Left Hand of Darkness", author: "Ursula K. Le Guin", year: 1969 },
    { id: 2, title: "Solaris", author: "Stanisław Lem", year: 1961 },
    { id: 3, title: "Kindred", author: "Octavia E. Butler", year: 1979 },
  ].map((book) => [book.id, book]),
);

const problem = (status, title) =>
  Response.json({ title, status }, { status, headers: { "content-type": "application/problem+json" } });

function list(query) {
  const wanted = (query.get("q") ?? "").toLowerCase();
  const found = [...BOOKS.values()].filter((book) => `${book.title} ${book.author}`.toLowerCase().includes(wanted));
  return Response.json(found.sort((a, b) => a.year - b.year));
}

async function add(request) {
  let book;
  try {
    book = await request.json();
  } catch {
    return problem(400, "The body is no JSON");
  }
  const { title, author, year } = book ?? {};
  if (typeof title !== "string" || typeof author !== "string" || !Number.isInteger(year)) {
    return problem(422, "A book has a title, an author and a year");
  }
  const id = BOOKS.size + 1;
  BOOKS.set(id, { id, title, author, year });
  return Response.json(BOOKS.get(id), { status: 201, headers: { location: `books/${id}` } });
}

export default {
  async fetch(request) {
    const { pathname, searchParams } = new URL(request.url);
    if (pathname === "/books" && request.method === "GET") return list(searchParams);
    if (pathname === "/books" && request.method === "POST") return add(request);
    const id = /^\/books\/(\d+)$/.exec(pathname)?.[1];
    const book = BOOKS.get(Number(id));
    return book === undefined ? problem(404, "There is no such book") : Response.json(book);
  },
};
