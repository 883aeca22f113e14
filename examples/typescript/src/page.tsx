import type { Bookmark } from "./bookmarks.js";

const Item = ({ bookmark }: { bookmark: Bookmark }) => (
  <li>
    <a href={bookmark.url}>{bookmark.title}</a>
  </li>
);

/** Returns the page with a form and the bookmarks. */
export const page = (bookmarks: Bookmark[], prefix: string) => (
  <html lang="en">
    <head>
      <title>Bookmarks</title>
    </head>
    <body>
      <form method="post" action={`${prefix}/bookmarks`}>
        <input name="url" type="url" required /> <input name="title" required /> <button>Add</button>
      </form>
      <ul>
        {bookmarks.map((bookmark) => (
          <Item bookmark={bookmark} />
        ))}
      </ul>
    </body>
  </html>
);
