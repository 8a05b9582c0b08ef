// html.ts: text and data from files, escaped for HTML.
import { printable } from '../core/printable.js'

const escapes: Readonly<Record<string, string>> = { '&': '&amp;', '<': '&lt;', '>': '&gt;', '"': '&quot;' }

/** Text as it may stand in an element or an attribute, without control characters. */
export const escapeHtml = (text: string): string =>
  printable(text).replace(/[&<>"]/g, character => escapes[character]!)

/** JSON as it may stand in a script element. */
export const scriptJson = (value: unknown): string => JSON.stringify(value).replaceAll('<', '\\u003c')
