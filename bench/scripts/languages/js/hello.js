export function answer() {
  return new Response("hello\n");
}
