// client.js: plots of the page of benchmarks; runs in the browser.
const { uPlot } = globalThis
const element = id => document.getElementById(id)
const data = JSON.parse(element('data').textContent)
const theme = matchMedia('(prefers-color-scheme: dark)')
const plotHeight = 240
const curveColours = 6
let plots = []

/** A colour of the style sheet as canvases take it. */
function colour(name) {
  const probe = document.createElement('span')
  probe.style.color = `var(--${name})`
  document.body.append(probe)
  const { color } = getComputedStyle(probe)
  probe.remove()
  return color
}

const widthOf = parent => Math.max(200, parent.clientWidth)

/** Milliseconds with four digits. */
const ms = value => (value === null || value === undefined ? '–' : `${Number(value.toPrecision(4))} ms`)

/** A plot of one curve for each measurement. */
function makePlot(id, x, label, curves) {
  const parent = element(id)
  const axis = {
    stroke: colour('soft'),
    grid: { stroke: colour('line'), width: 1 },
    ticks: { stroke: colour('line') },
  }
  const options = {
    width: widthOf(parent),
    height: plotHeight,
    scales: { x: { time: false } },
    axes: [axis, { ...axis, size: 62 }],
    series: [
      { label, value: (_, value) => (value === null ? '–' : String(value)) },
      ...data.map(({ name }, i) => ({
        label: name,
        stroke: colour(`curve-${i % curveColours}`),
        width: 1.5,
        dash: i < curveColours ? undefined : [6, 4],
        points: { show: x.length < 3 },
        value: (_, value) => ms(value),
      })),
    ],
  }
  return { plot: new uPlot(options, [x, ...curves], parent), parent }
}

/** Makes the plots: again when colours change. */
function makePlots() {
  for (const { plot } of plots) plot.destroy()
  if (data.length === 0) return
  const longest = data.reduce((most, { runs, stride }) => Math.max(most, runs.length * stride), 0)
  const stride = data.reduce((most, curve) => Math.max(most, curve.stride), 1)
  const runs = Array.from({ length: Math.ceil(longest / stride) }, (_, i) => i * stride)
  const byRun = data.map(curve => runs.map(run => curve.runs[Math.round(run / curve.stride)] ?? null))
  const shares = data[0].percentiles.map((_, i) => i)
  plots = [
    makePlot(
      'percentiles',
      shares,
      'percentile',
      data.map(curve => curve.percentiles),
    ),
    makePlot('runs', runs, 'run', byRun),
  ]
}

const isDark = () => (document.documentElement.dataset.theme ?? (theme.matches ? 'dark' : 'light')) === 'dark'
function useTheme(name) {
  if (name) document.documentElement.dataset.theme = name
  element('theme').textContent = isDark() ? 'Light' : 'Dark'
  makePlots()
}

element('theme').onclick = () => useTheme(isDark() ? 'light' : 'dark')
theme.addEventListener('change', () => useTheme())
addEventListener('resize', () => {
  for (const { plot, parent } of plots) plot.setSize({ width: widthOf(parent), height: plotHeight })
})
// Paper is white.
let onScreen
addEventListener('beforeprint', () => {
  onScreen ??= isDark() ? 'dark' : 'light'
  useTheme('light')
})
addEventListener('afterprint', () => {
  if (onScreen) useTheme(onScreen)
  onScreen = undefined
})
useTheme()
