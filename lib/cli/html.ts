// html.ts: HTML escaping of text from files.
import { printable } from '../core/printable.js'

const escapes: Readonly<Record<string, string>> = { '&': '&amp;', '<': '&lt;', '>': '&gt;', '"': '&quot;' }

/** Text as it may stand in an element or an attribute, without control characters. */
export const escapeHtml = (text: string): string =>
  printable(text).replace(/[&<>"]/g, character => escapes[character]!)
