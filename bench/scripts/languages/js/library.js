// Evaluates a formula by mathjs, which makes itself of its parts where the script begins: most of them
// when they are first used, so that is done there, too.
import { all, create } from "mathjs";

const math = create(all);
const formula = math.compile("sqrt(a ^ 2 + b ^ 2)");
formula.evaluate({ a: 1, b: 1 });

export function answer() {
  return new Response(`${formula.evaluate({ a: 3, b: 4 })}\n`);
}
