// The tables of operators: each operator has one row in each partition, in files of the same stem.
import t, { type Test } from 'tap'
import { families as gradients } from '../../dist/graph/gradients/table.js'
import { families as shapes } from '../../dist/graph/shapes/table.js'
import { families as lowerings } from '../../dist/plan/lower/index.js'

type Families = Readonly<Record<string, Readonly<Record<string, Readonly<Record<string, unknown>>>>>>

/** The stem of the file of each operator, by domain and name. */
function stemsOf(t: Test, partition: string, families: Families): Map<string, string> {
  const stems = new Map<string, string>()
  for (const [stem, family] of Object.entries(families)) {
    for (const [domain, rows] of Object.entries(family)) {
      for (const op of Object.keys(rows)) {
        const name = `${domain}::${op}`
        t.notOk(stems.has(name), `${partition}: ${name} has one row`)
        stems.set(name, stem)
      }
    }
  }
  return stems
}

t.test('an operator has its rules under the same stem in every partition', async t => {
  const home = stemsOf(t, 'shapes', shapes)
  for (const [partition, families] of Object.entries({ gradients, lowerings } as Record<string, Families>)) {
    for (const [name, stem] of stemsOf(t, partition, families)) {
      t.equal(stem, home.get(name), `${partition}: ${name}`)
    }
  }
  t.ok(home.size > 200)
})
