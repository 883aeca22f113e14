import { z } from "zod";

/** The fields of a bookmark that a client sends. */
export const draft = z.object({
  url: z.url({ protocol: /^https?$/ }),
  title: z.string().trim().min(1).max(200),
});

export type Draft = z.infer<typeof draft>;
