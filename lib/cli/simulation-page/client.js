// client.js: plots, paths and the table of the page of a simulation; runs in the browser.
const { uPlot } = globalThis
const element = id => document.getElementById(id)
const data = JSON.parse(element('data').textContent)
const theme = matchMedia('(prefers-color-scheme: dark)')
const kinds = ['a', 'b']
const pageSize = 100
const pathHeight = 240
const hasResults = data.rows.length > 0
const overTime = [
  ['speed', 'speed, m/s'],
  ['gap', 'gap, m'],
  ['acceleration', 'acceleration, m/s²'],
  ['lateralError', 'lateral error, m (left is positive)'],
]
let plots = []
let chosen = 0
let markPath = () => {}

function make(name, parent, text, attributes = {}) {
  const made = document.createElement(name)
  if (text !== undefined) made.textContent = text
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value)
  parent?.append(made)
  return made
}

function draw(name, attributes, text) {
  const drawn = document.createElementNS('http://www.w3.org/2000/svg', name)
  for (const [key, value] of Object.entries(attributes)) drawn.setAttribute(key, value)
  if (text !== undefined) drawn.textContent = text
  element('path').append(drawn)
  return drawn
}

/** A colour of the style sheet as canvases take it. */
function colour(name) {
  const probe = make('span', document.body)
  probe.style.color = `var(--${name})`
  const { color } = getComputedStyle(probe)
  probe.remove()
  return color
}

const digits = value => (value === null || value === undefined ? '–' : String(Number(value.toPrecision(4))))

/** A plot of one line for each algorithm; all are narrow enough for a page of paper. */
function makePlot(parent, title, columns, { unit, end, most, extra = {} }) {
  const section = make('section', parent)
  make('h3', section, title)
  const box = make('div', section, undefined, { class: 'plot', role: 'img', 'aria-label': title })
  const [soft, line] = ['soft', 'line'].map(colour)
  const axis = { stroke: soft, grid: { stroke: line, width: 1 }, ticks: { stroke: line } }
  const strokes = ['link', 'mark'].map(colour)
  const options = {
    width: plotWidth(parent, most),
    height: 170,
    legend: { show: false },
    cursor: { show: false },
    scales: { x: { time: false, range: () => [0, end] }, y: { range: rangeOf } },
    axes: [
      { ...axis, size: 30, values: (_, splits) => splits.map(value => `${value} ${unit}`) },
      { ...axis, size: 60 },
    ],
    series: [
      {},
      ...columns.slice(1).map((values, i) => ({
        stroke: strokes[i],
        width: 1.5,
        // Where both are the same, the first one shows through.
        ...(i > 0 && { dash: [7, 4] }),
        points: { show: values.filter(value => value !== null).length < 12 },
      })),
    ],
    ...extra,
  }
  const plot = new uPlot(options, columns, box)
  plots.push(plot)
}

/** The range of an axis; a value that is the same all over is in its middle. */
function rangeOf(_, low, high) {
  if (low === null) return [0, 1]
  return low === high ? [low - 1, high + 1] : uPlot.rangeNum(low, high, 0.1, true)
}

/** The width of a plot: as many columns as are wide enough, at most so many. */
function plotWidth(parent, most = 3) {
  const { clientWidth } = parent
  const count = Math.min(most, Math.max(1, Math.floor(clientWidth / 340)))
  return Math.max(200, Math.min(600, Math.floor((clientWidth - 16 * (count - 1)) / count)))
}

/** Lists of any lengths as columns of one table. */
function columnsOf(x, lists) {
  return [x, ...lists.map(list => x.map((_, i) => list[i] ?? null))]
}

function drawSorted() {
  const parent = element('sorted')
  parent.replaceChildren()
  for (const { name, unit, sorted } of data.metrics) {
    const count = Math.max(...sorted.map(list => list.length))
    const across = Array.from({ length: count }, (_, i) => (count === 1 ? 50 : (100 * i) / (count - 1)))
    const columns = columnsOf(across, sorted)
    makePlot(parent, unit ? `${name}, ${unit}` : name, columns, {
      unit: '%',
      end: 100,
    })
  }
}

/** A round step that divides a range into about so many parts. */
function roundStep(range, parts) {
  const raw = range / parts
  const power = 10 ** Math.floor(Math.log10(raw))
  return [1, 2, 5, 10].map(factor => factor * power).find(step => step >= raw)
}

/** The ranges of a path, and how they are mapped to the picture: y is stretched where a path is long and narrow. */
function scalesOf(points, width) {
  const range = (axis, least) => {
    const values = points.map(point => point[axis])
    const [low, high] = [Math.min(...values), Math.max(...values)]
    const spare = Math.max(0, least - (high - low)) / 2
    return [low - spare, high + spare]
  }
  const [[left, right], [bottom, top]] = [range(0, 10), range(1, 4)]
  const [inner, tall] = [width - 70, pathHeight - 44]
  const [across, up] = [inner / (right - left), tall / (top - bottom)]
  const scale = Math.min(across, up)
  const stretch = up > scale ? Math.min(up / scale, 50) : 1
  const [middle, centre] = [(left + right) / 2, (bottom + top) / 2]
  return {
    stretch,
    x: value => 52 + inner / 2 + (value - middle) * scale,
    y: value => 12 + tall / 2 - (value - centre) * scale * stretch,
    left,
    right,
    bottom,
    top,
  }
}

function drawGrid({ x, y, left, right, bottom, top, stretch }, width) {
  const across = roundStep(right - left, Math.max(2, width / 130))
  for (let value = Math.ceil(left / across) * across; value <= right; value += across) {
    draw('line', { class: 'grid', x1: x(value), x2: x(value), y1: 8, y2: pathHeight - 26 })
    draw('text', { x: x(value), y: pathHeight - 12 }, digits(value))
  }
  const up = roundStep(top - bottom, 4)
  for (let value = Math.ceil(bottom / up) * up; value <= top; value += up) {
    draw('line', { class: 'grid', x1: 46, x2: width - 8, y1: y(value), y2: y(value) })
    draw('text', { x: 24, y: y(value) + 4 }, digits(value))
  }
  if (stretch > 1.05)
    draw('text', { x: width - 90, y: 14 }, `across the road ×${digits(Number(stretch.toPrecision(2)))}`)
}

function drawPath(runs) {
  const picture = element('path')
  picture.replaceChildren()
  const width = Math.max(200, picture.clientWidth)
  picture.setAttribute('viewBox', `0 0 ${width} ${pathHeight}`)
  const isPoint = ([x, y]) => x !== null && y !== null
  const paths = runs.map(run => run.x.map((x, i) => [x, run.y[i]]))
  const targets = runs.map(run => run.target.filter(isPoint))
  const all = [...paths, ...targets].flat().filter(isPoint)
  if (all.length === 0) return
  const scales = scalesOf(all, width)
  drawGrid(scales, width)
  const at = ([x, y]) => `${scales.x(x).toFixed(1)},${scales.y(y).toFixed(1)}`
  // That of the longer drive shows all that both should have done.
  const target = targets.reduce((longest, list) => (list.length > longest.length ? list : longest))
  draw('polyline', { class: 'target', points: target.map(at).join(' ') })
  const marks = paths.map((path, i) => {
    const points = path.filter(isPoint)
    draw('polyline', { class: kinds[i], points: points.map(at).join(' ') })
    if (runs[i].ended !== 'finished' && points.length > 0) {
      const [x, y] = points.at(-1)
      draw('text', { class: 'end', x: scales.x(x) + 4, y: scales.y(y) + [-6, 14][i] }, `${runs[i].ended} ✕`)
    }
    return draw('circle', { class: kinds[i], r: 4, visibility: 'hidden' })
  })
  markPath = step => {
    for (const [i, mark] of marks.entries()) {
      const point = paths[i][step]
      const isShown = point !== undefined && isPoint(point)
      mark.setAttribute('visibility', isShown ? 'visible' : 'hidden')
      if (!isShown) continue
      mark.setAttribute('cx', scales.x(point[0]))
      mark.setAttribute('cy', scales.y(point[1]))
    }
  }
}

/** What all algorithms did at one step. */
function describeStep(runs, times, step) {
  if (step === null || step === undefined) return ''
  const parts = overTime.map(([name, title]) => {
    const values = runs.map(run => digits(run[name][step]))
    return `${title.split(',')[0]} ${values.join(' | ')}`
  })
  return [`${digits(times[step])} s`, ...parts].join(' · ')
}

/** Shows a scenario step by step. */
function showScenario(position) {
  chosen = Math.min(data.chosen.length - 1, Math.max(0, position))
  const { runs } = data.chosen[chosen]
  element('scenario').value = String(chosen)
  element('ended').textContent = runs
    .map(
      ({ ended, seconds }, i) =>
        `${runs.length > 1 ? `${'AB'[i]}: ` : ''}${ended} after ${digits(seconds)} s`,
    )
    .join(', ')
  element('now').textContent = ''
  drawPath(runs)
  plots = plots.filter(plot => {
    const isOld = element('steps').contains(plot.root)
    if (isOld) plot.destroy()
    return !isOld
  })
  element('steps').replaceChildren()
  const times = runs.reduce((longest, { time }) => (time.length > longest.length ? time : longest), [])
  const follow = plot => {
    const step = plot.cursor.idx
    element('now').textContent = describeStep(runs, times, step)
    markPath(step ?? -1)
  }
  const extra = {
    cursor: {
      show: true,
      y: false,
      drag: { x: false, y: false },
      sync: { key: 'steps' },
      points: { show: true },
    },
    hooks: { setCursor: [follow] },
  }
  for (const [name, title] of overTime) {
    const columns = columnsOf(
      times,
      runs.map(run => run[name]),
    )
    makePlot(element('steps'), title, columns, {
      unit: 's',
      end: Math.max(times.at(-1) ?? 0, 0.1),
      most: 2,
      extra,
    })
  }
}

const state = { column: -1, isAscending: true, shown: '0', ended: '', limit: pageSize }

/** The number of a metric that is shown of a row. */
function metricOf(row, metric) {
  if (state.shown !== 'difference') return row.values[Number(state.shown)]?.[metric] ?? null
  const [a, b] = row.values.map(values => values[metric])
  return a === null || b === null ? null : Number((b - a).toPrecision(5))
}

const fixedColumns = [
  ['#', row => row.index],
  ['scenario', row => row.name],
  ...(data.rows[0]?.ended ?? []).map((_, i, all) => [
    all.length > 1 ? `ended ${'AB'[i]}` : 'ended',
    row => row.ended[i],
  ]),
]
const tableColumns = [
  ...fixedColumns,
  ...data.metrics.map(({ name, unit }, i) => [unit ? `${name}, ${unit}` : name, row => metricOf(row, i)]),
]

function sortedRows() {
  const rows = data.rows.filter(row => state.ended === '' || row.ended.includes(state.ended))
  if (state.column < 0) return rows
  const read = tableColumns[state.column][1]
  const sign = state.isAscending ? 1 : -1
  return rows.sort((one, other) => {
    const [a, b] = [read(one), read(other)]
    // What has no number comes last, whatever the order.
    if (a === null || b === null) return Number(a === null) - Number(b === null)
    return sign * (typeof a === 'string' ? a.localeCompare(b) : a - b)
  })
}

function sortBy(column) {
  state.isAscending = state.column === column ? !state.isAscending : true
  state.column = column
  showTable()
}

function showTable() {
  const table = element('scenarios')
  const [head, body] = [table.tHead, table.tBodies[0]]
  head.replaceChildren()
  const headRow = make('tr', head)
  for (const [i, [title]] of tableColumns.entries()) {
    const sorted = state.column === i ? (state.isAscending ? 'ascending' : 'descending') : 'none'
    const kind = i > 0 && i < fixedColumns.length ? 'text' : ''
    const th = make('th', headRow, undefined, { scope: 'col', 'aria-sort': sorted, class: kind })
    const arrow = { ascending: ' ↑', descending: ' ↓', none: '' }[sorted]
    make('button', th, `${title}${arrow}`).onclick = () => sortBy(i)
  }
  const rows = sortedRows()
  body.replaceChildren()
  for (const row of rows.slice(0, state.limit)) showRow(body, row)
  element('count').textContent = `${rows.length} ${rows.length === 1 ? 'scenario' : 'scenarios'}`
  element('more').hidden = rows.length <= state.limit
}

const positions = new Map(data.chosen.map(({ index }, i) => [index, i]))

function showRow(body, row) {
  const tr = make('tr', body)
  for (const [i, [, read]] of tableColumns.entries()) {
    const value = read(row)
    if (i === 1) {
      const td = make('td', tr, undefined, { class: 'name' })
      const position = positions.get(row.index)
      if (position === undefined) td.textContent = value
      else
        make('button', td, value, { class: 'open', title: 'step by step' }).onclick = () => {
          showScenario(position)
          element('single').scrollIntoView()
        }
    } else if (i < fixedColumns.length) make('td', tr, String(value), i > 0 ? { class: 'text' } : {})
    else make('td', tr, digits(value))
  }
}

function drawAll() {
  for (const plot of plots) plot.destroy()
  plots = []
  drawSorted()
  showScenario(chosen)
}

const isDark = () => (document.documentElement.dataset.theme ?? (theme.matches ? 'dark' : 'light')) === 'dark'
function useTheme() {
  element('theme').textContent = isDark() ? 'Light' : 'Dark'
  if (hasResults) drawAll()
}

element('theme').onclick = () => {
  document.documentElement.dataset.theme = isDark() ? 'light' : 'dark'
  useTheme()
}
theme.addEventListener('change', useTheme)

// On paper everything is light.
let themeOfScreen
addEventListener('beforeprint', () => {
  themeOfScreen = document.documentElement.dataset.theme
  document.documentElement.dataset.theme = 'light'
  useTheme()
})
addEventListener('afterprint', () => {
  if (themeOfScreen) document.documentElement.dataset.theme = themeOfScreen
  else delete document.documentElement.dataset.theme
  useTheme()
})

if (hasResults) {
  for (const [i, { index, name, runs }] of data.chosen.entries())
    make('option', element('scenario'), `${index}: ${name} (${runs.map(({ ended }) => ended).join(', ')})`, {
      value: i,
    })
  element('scenario').onchange = event => showScenario(Number(event.target.value))
  element('previous').onclick = () => showScenario(chosen - 1)
  element('next').onclick = () => showScenario(chosen + 1)
  element('filter').onchange = event => {
    Object.assign(state, { ended: event.target.value, limit: pageSize })
    showTable()
  }
  if (element('shown'))
    element('shown').onchange = event => {
      state.shown = event.target.value
      showTable()
    }
  element('more').onclick = () => {
    state.limit += pageSize
    showTable()
  }
  let waiting
  addEventListener('resize', () => {
    clearTimeout(waiting)
    waiting = setTimeout(drawAll, 100)
  })
  showTable()
}
useTheme()
