import type { Draft } from "./draft.js";

/** The methods of a key-value store that this program uses. */
export interface Store {
  get(keys: string[], type: "json"): Promise<Map<string, unknown>>;
  get(key: string, type: "json"): Promise<unknown>;
  put(key: string, value: string): Promise<void>;
  delete(key: string): Promise<void>;
  list(options: { prefix: string }): Promise<{ keys: { name: string }[] }>;
  increment(key: string): Promise<number>;
}

export interface Bookmark extends Draft {
  id: number;
}

/** Bookmarks, each under a key of its own. */
export class Bookmarks {
  constructor(private readonly store: Store) {}

  async list(): Promise<Bookmark[]> {
    const { keys } = await this.store.list({ prefix: "bookmark:" });
    const found = await this.store.get(keys.map(({ name }) => name), "json");
    return [...found.values()] as Bookmark[];
  }

  async add(draft: Draft): Promise<Bookmark> {
    // Two requests at the same time get different numbers.
    const id = await this.store.increment("last");
    const bookmark: Bookmark = { id, ...draft };
    await this.store.put(Bookmarks.key(id), JSON.stringify(bookmark));
    return bookmark;
  }

  async delete(id: number): Promise<boolean> {
    const key = Bookmarks.key(id);
    if ((await this.store.get(key, "json")) === null) return false;
    await this.store.delete(key);
    return true;
  }

  // Keys are listed in the order of their bytes.
  private static key(id: number): string {
    return `bookmark:${String(id).padStart(10, "0")}`;
  }
}
