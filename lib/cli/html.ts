// html.ts: HTML escaping.
const escapes: Readonly<Record<string, string>> = { '&': '&amp;', '<': '&lt;', '>': '&gt;', '"': '&quot;' }

/** Text as it may stand in an element or an attribute. */
export const escapeHtml = (text: string): string => text.replace(/[&<>"]/g, character => escapes[character]!)
