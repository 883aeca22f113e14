const ESCAPES = { "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#39;" };

class Raw {
  constructor(text) {
    this.text = text;
  }
}

/** Text that is HTML already. */
export const raw = (text) => new Raw(text);

/** A function of values that fills `{{name}}`, escaped. */
export function compile(template) {
  const parts = template.split(/\{\{\s*(\w+)\s*\}\}/);
  return (values) =>
    parts
      .map((part, index) => {
        if (index % 2 === 0) return part;
        const value = values[part] ?? "";
        return value instanceof Raw ? value.text : String(value).replace(/[&<>"']/g, (mark) => ESCAPES[mark]);
      })
      .join("");
}
