"""Layouts of published tables: wide, one file for each station, positions in another table."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from stonet.errors import DataError
from stonet.io.read import read

HOURS = pd.date_range("2012-10-01 12:00", periods=30, freq="h")
CITIES = {"Vancouver": (49.25, -123.12), "Portland": (45.52, -122.68), "São Paulo": (-23.5, -46.6)}


def hourly(row: str) -> str:
    """A line for each hour; {t} is the time and {h} its number."""
    return "".join(row.format(t=t, h=h) + "\n" for h, t in enumerate(HOURS))


@pytest.fixture
def folder(tmp_path):
    """Kaggle's "historical hourly weather", in small."""
    stations = "".join(f"{c},X,{lat},{lon}\n" for c, (lat, lon) in CITIES.items())
    files = {
        "city_attributes": "City,Country,Latitude,Longitude\n" + stations,
        "temperature": "datetime,Portland,Vancouver,São Paulo\n" + hourly("{t},1{h},2{h},"),
        "humidity": "datetime,Vancouver,Portland,São Paulo\n" + hourly("{t},3{h},4{h},5{h}"),
        "weather_description": "datetime,Vancouver,Portland\n" + hourly("{t},mist,light rain"),
    }
    for name, text in files.items():
        (tmp_path / f"{name}.csv").write_text(text, encoding="utf-8")
    return tmp_path


def test_wide_tables_are_located_by_a_table_of_stations(folder):
    field = read(folder)
    assert field.channels == ("humidity", "temperature")
    assert {name: (lat, lon) for name, lat, lon in field.points} == CITIES
    for channel, cells in (("temperature", "21"), ("humidity", "34")):
        for city, start in zip(("Vancouver", "Portland"), cells, strict=True):
            node, column = field.points.names.index(city), field.channels.index(channel)
            expected = [float(f"{start}{hour}") for hour in range(30)]
            assert field.values[:, node, column].tolist() == expected
    sao = field.points.names.index("São Paulo")
    assert field.observed[:, sao].tolist() == [[True, False]] * 30
    assert any("2 of 4 files are left out" in note for note in field.notes)
    assert any("Positions are from" in note for note in field.notes)
    alone = read(folder / "humidity.csv")
    np.testing.assert_array_equal(alone.values, read(folder, variables="humidity").values)


def test_a_single_wide_table_is_read_under_the_requested_name(folder):
    """Its channel is named after the file, so a model of humidity.csv can read newest.csv."""
    expected = read(folder / "humidity.csv")
    (folder / "humidity.csv").rename(folder / "newest.csv")
    field = read(folder / "newest.csv", variables="humidity")
    assert (field.channels, field.points) == (expected.channels, expected.points)
    np.testing.assert_array_equal(field.values, expected.values)
    assert any("newest.csv' are read as 'humidity', as requested" in note for note in field.notes)
    assert not any("as requested" in note for note in read(folder / "newest.csv").notes)
    frame = pd.read_csv(folder / "newest.csv")
    stations = str(folder / "city_attributes.csv")
    assert read(frame, variables="humidity", stations=stations).channels == ("humidity",)
    for many in (folder, [folder / "newest.csv", folder / "temperature.csv"], [frame, frame]):
        with pytest.raises(DataError, match=r"humidity"):  # it is unclear which of them
            read(many, variables="humidity", stations=stations)
    for other in ("Portland", "humidity,wind"):  # a station; and one of two
        with pytest.raises(DataError, match=r"holds 'newest', one column for each station"):
            read(folder / "newest.csv", variables=other)


def test_files_without_values_are_errors_if_they_are_alone(folder):
    with pytest.raises(DataError, match=r"is a table of stations; it has no time column"):
        read(folder / "city_attributes.csv")
    with pytest.raises(DataError, match=r"holds no values to forecast: .*'Vancouver'"):
        read(folder / "weather_description.csv")
    with pytest.raises(
        DataError, match=r"No variable 'rain' .*there are: humidity, temperature, wea"
    ):
        read(folder, variables="rain")


def test_a_station_without_a_position_is_left_out(folder, tmp_path):
    text = "datetime,Vancouver,Atlantis,Portland\n" + hourly("{t},1,2,3")
    (folder / "wind.csv").write_text(text)
    field = read(folder / "wind.csv")
    assert field.points.names == ("Vancouver", "Portland")
    assert any("1 of 3 stations have no known position" in note for note in field.notes)
    (folder / "wind.csv").write_text("datetime,Mu,Atlantis,Lemuria\n" + hourly("{t},1,2,3"))
    with pytest.raises(DataError, match=r"no table lists 'Mu', .*'wind'.*read.stations"):
        read(folder / "wind.csv")


def test_station_names_match_loosely_but_must_be_unique(tmp_path):
    (tmp_path / "t.csv").write_text("time,site,v\n2020-01-01,new_york ,1\n2020-01-01,2,3\n")
    stations = tmp_path / "elsewhere.csv"
    stations.write_text("code;Name;lat;lon\nKNYC;New York;40,7;-74,0\n2;Rome;41,9;12,5\n")
    with pytest.raises(DataError, match=r"no positions"):
        (tmp_path / "sub").mkdir()
        (tmp_path / "t.csv").rename(tmp_path / "sub" / "t.csv")
        read(tmp_path / "sub" / "t.csv")
    field = read(tmp_path / "sub" / "t.csv", stations=str(stations))
    assert list(field.points) == [("new_york", 40.7, -74.0)]  # one column of names at a time
    stations.write_text("Name,lat,lon\nNew York,40.7,-74\nNew York,1,2\n")
    with pytest.raises(DataError, match=r"elsewhere.csv': station 'new_york' is at"):
        read(tmp_path / "sub" / "t.csv", stations=str(stations))


def test_nrel_file_names_contain_positions(data):
    folder = data("nrel-solar")
    field = read(folder)
    assert (field.quantity, field.values.shape) == ((("Power", "MW"),), (105_120, 4, 1))
    assert field.observed.all()
    assert [point[1:] for point in field.points] == [
        (33.05, -80.25), (33.25, -84.25), (34.05, -86.05), (35.15, -81.15),
    ]  # fmt: skip
    assert np.array_equal(np.diff(field.times), np.full(105_119, 300 * 10**9))
    assert np.datetime64(int(field.times[0]), "ns") == np.datetime64("2006-01-01")
    assert (field.values.max(0).ravel() <= [128, 21, 36, 34]).all()  # the capacities
    noon = field.values.reshape(365, 288, 4)[:, 144].mean(0)
    assert (noon > 5).all() and not field.values.reshape(365, 288, 4)[:, 12].any()
    alone = read(folder / "Actual_34.05_-86.05_2006_DPV_36MW_5_Min.csv.gz")
    np.testing.assert_array_equal(alone.values[:, 0], field.values[:, 2])
    with pytest.raises(DataError, match=r"alabama_137_plants.csv' is a table of stations"):
        read(folder / "alabama_137_plants.csv")


def test_one_file_for_each_station(tmp_path):
    """Files of Meteostat, beside its table of stations."""
    for name, first in (("10637", 1), ("10384", 2)):
        text = "time,temp,rhum,coco\n" + hourly(f"{{t}},{first}{{h}},80,")
        (tmp_path / f"{name}.csv").write_text(text)
    (tmp_path / "stations.csv").write_text(
        "id,name,country,latitude,longitude,elevation\n10637,Frankfurt,DE,50.05,8.6,111\n"
        "10384,Berlin,DE,52.4667,13.4,50\n"
    )
    field = read(tmp_path)
    assert list(field.points) == [("10384", 52.4667, 13.4), ("10637", 50.05, 8.6)]
    assert field.sites["altitude"].tolist() == [50, 111]
    assert field.values[3, :, 0].tolist() == [23, 13]


@pytest.mark.parametrize(
    ("text", "channels", "names", "first"),
    [
        (  # Global Weather Repository: labels, and local times beside the epoch
            "country,location_name,latitude,longitude,timezone,last_updated_epoch,last_updated,"
            "temperature_celsius,wind_direction,sunrise\n"
            "Afghanistan,Kabul,34.52,69.18,Asia/Kabul,1715849100,2024-05-16 13:15,26.6,N,4:50 AM\n"
            "Albania,Tirana,41.33,19.82,Europe/Tirane,1715849100,2024-05-16 10:45,19.0,E,5:21 AM\n",
            ("temperature_celsius",), ("Kabul", "Tirana"), "2024-05-16T08:45",
        ),
        (  # NOAA's global summary of the day: everything in quotes, a comma in the name
            '"STATION","DATE","LATITUDE","LONGITUDE","ELEVATION","NAME","TEMP"\n'
            '"01001099999","2019-01-01","70.93","-8.67","9.0","JAN MAYEN, NO","  21.5"\n'
            '"01001099999","2019-01-02","70.93","-8.67","9.0","JAN MAYEN, NO","  22.5"\n',
            ("TEMP",), ("01001099999",), "2019-01-01",
        ),
        (  # Berkeley Earth: letters for the hemispheres
            "dt,AverageTemperature,City,Country,Latitude,Longitude\n"
            "1849-01-01,26.704,Abidjan,Côte D'Ivoire,5.63N,3.23W\n"
            "1849-02-01,27.434,Abidjan,Côte D'Ivoire,5.63N,3.23W\n",
            ("AverageTemperature",), ("Abidjan",), "1849-01-01",
        ),
        (  # Open-Meteo: the stations stand above the rows
            "location_id,latitude,longitude,elevation,utc_offset_seconds,timezone\n"
            "0,52.52,13.42,38.0,0,GMT\n1,48.1,11.5,500.0,0,GMT\n\n"
            "location_id,time,temperature_2m (°C),rain (mm)\n"
            "0,2022-01-01T00:00,1.5,0.0\n1,2022-01-01T00:00,2.5,0.1\n",
            ("temperature_2m", "rain"), ("0", "1"), "2022-01-01",
        ),
        (  # a header that hides in a comment
            "# made by hand\n# station,time,lat,lon,v\n7,2019-01-01,1,2,3\n7,2019-01-02,1,2,3\n",
            ("v",), ("7",), "2019-01-01",
        ),
    ],
    ids=["weather-repository", "gsod", "berkeley", "open-meteo", "comment"],
)  # fmt: skip
def test_published_layouts_are_read(tmp_path, text, channels, names, first):
    (tmp_path / "t.csv").write_text(text, encoding="utf-8")
    field = read(tmp_path / "t.csv")
    assert (field.channels, field.points.names) == (channels, names)
    assert np.datetime64(int(field.times[0]), "ns") == np.datetime64(first)
    assert field.observed.all()


def test_hemispheres_become_signs(tmp_path):
    (tmp_path / "t.csv").write_text("dt,T,City,lat,lon\n1849-01-01,1,a,5.63S,3.23W\n")
    assert read(tmp_path / "t.csv").points.coordinates.tolist() == [[-5.63, -3.23]]


def test_a_station_and_its_time_zone_above_the_rows(tmp_path):
    text = (
        "latitude,longitude,elevation,utc_offset_seconds,timezone\n52.52,13.42,38.0,{}\n\n"
        "time,temperature_2m (°C)\n2022-07-01T00:00,1.5\n"
    )
    (tmp_path / "berlin.csv").write_text(text.format("0,GMT"), encoding="utf-8")
    assert list(read(tmp_path / "berlin.csv").points) == [("berlin", 52.52, 13.42)]
    (tmp_path / "berlin.csv").write_text(text.format("7200,Europe/Berlin"), encoding="utf-8")
    with pytest.raises(DataError, match=r"are those of Europe/Berlin. Give --timezone"):
        read(tmp_path / "berlin.csv")
    local = read(tmp_path / "berlin.csv", timezone="Europe/Berlin")
    assert np.datetime64(int(local.times[0]), "ns") == np.datetime64("2022-06-30T22:00")


def test_air_quality_of_uci(tmp_path):
    """Semicolons, decimal commas, dots in times, empty columns and rows, -200 for missing."""
    rows = "".join(
        f"{day}/03/2004;{hour:02d}.00.00;2,6;1360;-200;;\n"
        for day in (10, 13)
        for hour in range(24)
    )
    (tmp_path / "AirQualityUCI.csv").write_text(
        "Date;Time;CO(GT);PT08.S1(CO);NMHC(GT);;\n" + rows + ";;;;;;\n" * 9
    )
    with pytest.raises(DataError, match=r"no table lists .*'AirQualityUCI'"):
        read(tmp_path / "AirQualityUCI.csv")
    (tmp_path / "stations.csv").write_text("name,lat,lon\nAirQualityUCI,45.46,9.19\n")
    field = read(tmp_path / "AirQualityUCI.csv", missing="-200")
    assert field.values.shape == (48, 1, 3)
    assert (field.values[..., 0] == np.float32(2.6)).all()
    assert field.observed[..., 2].sum() == 0
    assert np.datetime64(int(field.times[-1]), "ns") == np.datetime64("2004-03-13T23:00")


def test_air_quality_of_beijing(tmp_path):
    """Columns of year, month, day, hour; local times; text; positions in another table."""
    for station in ("Dongsi", "Gucheng"):
        rows = "".join(
            f"{i + 1},2013,3,{1 + i // 24},{i % 24},{i},-0.7,NNW,{station}\n" for i in range(48)
        )
        text = "No,year,month,day,hour,PM2.5,TEMP,wd,station\n" + rows
        (tmp_path / f"PRSA_{station}.csv").write_text(text)
    with pytest.raises(DataError, match=r"no table lists 'Dongsi'.*read.stations"):
        read(tmp_path)
    stations = "station,lat,lon\nDongsi,39.929,116.417\nGucheng,39.914,116.184\n"
    (tmp_path / "stations.csv").write_text(stations)
    field = read(tmp_path, timezone="Asia/Shanghai", variables="PM2.5,TEMP")
    assert field.points.names == ("Dongsi", "Gucheng")
    assert field.values[:, 1, 0].tolist() == list(range(48))
    assert np.datetime64(int(field.times[0]), "ns") == np.datetime64("2013-02-28T16:00")


def test_dataframes_with_any_index_and_type_agree(tmp_path):
    frame = pd.DataFrame(
        {"station": ["a", "b"] * 30, "time": HOURS.repeat(2), "lat": [1.0, 2.0] * 30, "lon": 3.0}
    ).assign(v=np.arange(60.0))
    expected = read(frame)
    assert expected.values[:, 1, 0].tolist() == list(range(1, 60, 2))
    for same in (
        frame.set_index(["station", "time"]),
        frame.set_index("time"),
        frame.astype({"station": "category"}),
        frame.convert_dtypes(),
        frame.assign(time=frame.time.dt.to_period("h")),
        frame.sample(frac=1, random_state=0),
    ):
        np.testing.assert_array_equal(read(same).values, expected.values)
        assert np.array_equal(read(same).times, expected.times)
    (tmp_path / "stations.csv").write_text("name,lat,lon\na,1,3\nb,2,3\n")
    wide = frame.pivot(index="time", columns="station", values="v").rename_axis(columns="v")
    field = read(wide, stations=str(tmp_path / "stations.csv"))
    np.testing.assert_array_equal(field.values, expected.values)
    assert field.channels == ("v",)
