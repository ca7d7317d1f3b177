/* Forecasts at the reader's own sites, from a CSV file that is dropped or chosen. */

import * as api from "./api.js";
import { leadWords } from "./clock.js";
import { readSites } from "./csv.js";
import { fillTable } from "./table.js";

const QUANTILES = [0.05, 0.25, 0.75, 0.95];
const COLUMNS = 6; // lead times in the table
const part = (id) => document.getElementById(id);

export class Sites {
  /** `events`: {shown(positions), trouble(error), busy(promise)}. */
  constructor(context, events) {
    Object.assign(this, { context, events, sites: null, made: null });
    const take = (files) => files.length && this.read(files[0]);
    part("file").addEventListener("change", (event) => {
      take(event.target.files);
      event.target.value = "";
    });
    const holds = (event) => event.dataTransfer?.types.includes("Files");
    document.addEventListener("dragover", (event) => {
      if (!holds(event)) return;
      event.preventDefault();
      document.body.classList.add("dropping");
    });
    document.addEventListener("dragleave", (event) => {
      if (!event.relatedTarget) document.body.classList.remove("dropping");
    });
    document.addEventListener("drop", (event) => {
      if (!holds(event)) return;
      event.preventDefault();
      document.body.classList.remove("dropping");
      take(event.dataTransfer.files);
    });
    part("sites-csv").addEventListener("click", () => this.save("csv"));
    part("sites-netcdf").addEventListener("click", () => this.save("netcdf"));
    part("sites-clear").addEventListener("click", () => this.clear());
  }

  async read(file) {
    try {
      this.sites = readSites(await file.text(), this.context().model.kind);
      this.sites.file = file.name;
    } catch (error) {
      this.events.trouble(new Error(`${file.name}: ${error.message}`));
      return;
    }
    await this.ask();
  }

  body() {
    const { issueQuery } = this.context();
    const { names, positions } = this.sites;
    return { sites: positions, names, issue_time: issueQuery };
  }

  /** Ask for the forecasts again, as after another issue time. */
  async ask() {
    if (!this.sites) return;
    try {
      this.made = await this.events.busy(api.getForecast(this.body()));
    } catch (error) {
      this.clear();
      this.events.trouble(error);
      return;
    }
    this.events.shown(this.sites.positions);
    this.show();
  }

  show() {
    if (!this.made) return;
    const { clock, quantity, channel, issue } = this.context();
    const { times, sites, channels } = this.made;
    const wanted = Math.min(COLUMNS, times.length);
    const kept = Array.from({ length: wanted }, (_, k) => Math.round(((k + 1) * times.length) / wanted) - 1);
    const far = sites.filter((site) => site.support === 2 || /^extrapol/.test(site.support)).length;
    part("sites").hidden = false;
    part("sites-words").textContent = `${sites.length} ${sites.length === 1 ? "site" : "sites"} of ${this.sites.file}`
      + (far ? `; ${far} far from any observation (marked *).` : ".");
    fillTable(part("sites-table"), quantity.title,
      ["Site", ...kept.map((k) => `${clock.short(times[k])} ${leadWords(times[k] - issue)}`)],
      sites.map((site, i) => [
        site.name + (site.support === 2 || /^extrapol/.test(site.support) ? " *" : ""),
        ...kept.map((k) => quantity.number(channels[channel].values[i][k]))]));
  }

  save(format) {
    const body = { ...this.body(), quantiles: this.context().model.quantiles_available === false ? null : QUANTILES };
    this.events.busy(api.download(body, format)).catch(this.events.trouble);
  }

  clear() {
    Object.assign(this, { sites: null, made: null });
    part("sites").hidden = true;
    this.events.shown([]);
  }
}
