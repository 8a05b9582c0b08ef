// families.ts: tables of operators by family, and the lookup of an operator in them.
import type { Node } from './graph.js'

/** Entries by the stem of a family's file, domain and operator. */
export type Families<Entry> = Readonly<
  Record<string, Readonly<Record<string, Readonly<Record<string, Entry>>>>>
>

/** The entry of the operator of a node; undefined for an operator in no family. */
export function entryOf<Entry>(families: Families<Entry>, node: Node): Entry | undefined {
  const name = familyOf(families, node)
  return name === undefined ? undefined : families[name]![node.domain]![node.op]
}

/** The stem of the family of the operator of a node; undefined for an operator in none. */
export function familyOf(families: Families<unknown>, { domain, op }: Node): string | undefined {
  for (const name in families) {
    const family = families[name]!
    const entries = Object.hasOwn(family, domain) ? family[domain] : undefined
    if (entries && Object.hasOwn(entries, op)) return name
  }
  return undefined
}
