"""Tables as they are found in the wild: wide, one file for each station, with places elsewhere."""

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
    places = "".join(f"{c},X,{lat},{lon}\n" for c, (lat, lon) in CITIES.items())
    files = {
        "city_attributes": "City,Country,Latitude,Longitude\n" + places,
        "temperature": "datetime,Portland,Vancouver,São Paulo\n" + hourly("{t},1{h},2{h},"),
        "humidity": "datetime,Vancouver,Portland,São Paulo\n" + hourly("{t},3{h},4{h},5{h}"),
        "weather_description": "datetime,Vancouver,Portland\n" + hourly("{t},mist,light rain"),
    }
    for name, text in files.items():
        (tmp_path / f"{name}.csv").write_text(text, encoding="utf-8")
    return tmp_path


def test_wide_tables_find_their_places(folder):
    found = read(folder)
    assert found.channels == ("humidity", "temperature")
    assert {name: (lat, lon) for name, lat, lon in found.points} == CITIES
    for channel, cells in (("temperature", "21"), ("humidity", "34")):
        for city, start in zip(("Vancouver", "Portland"), cells, strict=True):
            node, column = found.points.names.index(city), found.channels.index(channel)
            expected = [float(f"{start}{hour}") for hour in range(30)]
            assert found.values[:, node, column].tolist() == expected
    sao = found.points.names.index("São Paulo")
    assert found.observed[:, sao].tolist() == [[True, False]] * 30
    assert any("2 of 4 files are left out" in note for note in found.notes)
    assert any("Positions are from" in note for note in found.notes)
    alone = read(folder / "humidity.csv")
    assert np.array_equal(alone.values, read(folder, variables="humidity").values, equal_nan=True)


def test_a_single_wide_table_is_called_as_it_is_asked_for(folder):
    """Its name is only the file's: what was learned from humidity.csv is asked of newest.csv."""
    expected = read(folder / "humidity.csv")
    (folder / "humidity.csv").rename(folder / "newest.csv")
    found = read(folder / "newest.csv", variables="humidity")
    assert (found.channels, found.points) == (expected.channels, expected.points)
    assert np.array_equal(found.values, expected.values, equal_nan=True)
    assert any("newest.csv' are taken as 'humidity', as asked" in note for note in found.notes)
    assert not any("as asked" in note for note in read(folder / "newest.csv").notes)
    frame = pd.read_csv(folder / "newest.csv")
    places = str(folder / "city_attributes.csv")
    assert read(frame, variables="humidity", stations=places).channels == ("humidity",)
    for many in (folder, [folder / "newest.csv", folder / "temperature.csv"], [frame, frame]):
        with pytest.raises(DataError, match=r"humidity"):  # which of them?
            read(many, variables="humidity", stations=places)
    for other in ("Portland", "humidity,wind"):  # a station; and one of two
        with pytest.raises(DataError, match=r"holds 'newest', one column for each station"):
            read(folder / "newest.csv", variables=other)


def test_files_without_values_are_errors_by_themselves(folder):
    with pytest.raises(DataError, match=r"is a table of places; it has no time column"):
        read(folder / "city_attributes.csv")
    with pytest.raises(DataError, match=r"holds no numbers to forecast: .*'Vancouver'"):
        read(folder / "weather_description.csv")
    with pytest.raises(
        DataError, match=r"No variable 'rain' .*there are: humidity, temperature, wea"
    ):
        read(folder, variables="rain")


def test_a_station_that_nobody_knows_is_left_out(folder, tmp_path):
    text = "datetime,Vancouver,Atlantis,Portland\n" + hourly("{t},1,2,3")
    (folder / "wind.csv").write_text(text)
    found = read(folder / "wind.csv")
    assert found.points.names == ("Vancouver", "Portland")
    assert any("1 of 3 stations have no known position" in note for note in found.notes)
    (folder / "wind.csv").write_text("datetime,Mu,Atlantis,Lemuria\n" + hourly("{t},1,2,3"))
    with pytest.raises(DataError, match=r"no table tells where 'wind', 'Mu', .*read.stations"):
        read(folder / "wind.csv")


def test_places_may_be_called_loosely_but_not_twice(tmp_path):
    (tmp_path / "t.csv").write_text("time,site,v\n2020-01-01,new_york ,1\n2020-01-01,2,3\n")
    places = tmp_path / "elsewhere.csv"
    places.write_text("code;Name;lat;lon\nKNYC;New York;40,7;-74,0\n2;Rome;41,9;12,5\n")
    with pytest.raises(DataError, match=r"no positions"):
        (tmp_path / "sub").mkdir()
        (tmp_path / "t.csv").rename(tmp_path / "sub" / "t.csv")
        read(tmp_path / "sub" / "t.csv")
    found = read(tmp_path / "sub" / "t.csv", stations=str(places))
    assert list(found.points) == [("new_york", 40.7, -74.0)]  # one column of names at a time
    places.write_text("Name,lat,lon\nNew York,40.7,-74\nNew York,1,2\n")
    with pytest.raises(DataError, match=r"elsewhere.csv': station 'new_york' is at"):
        read(tmp_path / "sub" / "t.csv", stations=str(places))


def test_nrel_files_tell_their_position(data):
    folder = data("nrel-solar")
    found = read(folder)
    assert (found.quantity, found.values.shape) == ((("Power", "MW"),), (105_120, 4, 1))
    assert found.observed.all()
    assert [place[1:] for place in found.points] == [
        (33.05, -80.25), (33.25, -84.25), (34.05, -86.05), (35.15, -81.15),
    ]  # fmt: skip
    assert np.array_equal(np.diff(found.times), np.full(105_119, 300 * 10**9))
    assert np.datetime64(int(found.times[0]), "ns") == np.datetime64("2006-01-01")
    assert (found.values.max(0).ravel() <= [128, 21, 36, 34]).all()  # the capacities
    noon = found.values.reshape(365, 288, 4)[:, 144].mean(0)
    assert (noon > 5).all() and not found.values.reshape(365, 288, 4)[:, 12].any()
    alone = read(folder / "Actual_34.05_-86.05_2006_DPV_36MW_5_Min.csv.gz")
    assert np.array_equal(alone.values[:, 0], found.values[:, 2], equal_nan=True)
    with pytest.raises(DataError, match=r"alabama_137_plants.csv' is a table of places"):
        read(folder / "alabama_137_plants.csv")


def test_one_file_for_each_station(tmp_path):
    """Meteostat's dumps, with its table of stations beside them."""
    for name, first in (("10637", 1), ("10384", 2)):
        text = "time,temp,rhum,coco\n" + hourly(f"{{t}},{first}{{h}},80,")
        (tmp_path / f"{name}.csv").write_text(text)
    (tmp_path / "stations.csv").write_text(
        "id,name,country,latitude,longitude,elevation\n10637,Frankfurt,DE,50.05,8.6,111\n"
        "10384,Berlin,DE,52.4667,13.4,50\n"
    )
    found = read(tmp_path)
    assert list(found.points) == [("10384", 52.4667, 13.4), ("10637", 50.05, 8.6)]
    assert found.sites["altitude"].tolist() == [50, 111]
    assert found.values[3, :, 0].tolist() == [23, 13]


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
        (  # Open-Meteo: the places stand above the rows
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
def test_layouts_of_the_wild(tmp_path, text, channels, names, first):
    (tmp_path / "t.csv").write_text(text, encoding="utf-8")
    found = read(tmp_path / "t.csv")
    assert (found.channels, found.points.names) == (channels, names)
    assert np.datetime64(int(found.times[0]), "ns") == np.datetime64(first)
    assert found.observed.all()


def test_hemispheres_have_signs(tmp_path):
    (tmp_path / "t.csv").write_text("dt,T,City,lat,lon\n1849-01-01,1,a,5.63S,3.23W\n")
    assert read(tmp_path / "t.csv").points.coordinates.tolist() == [[-5.63, -3.23]]


def test_a_single_place_above_the_rows_and_its_zone(tmp_path):
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


def test_air_quality_uci(tmp_path):
    """Semicolons, decimal commas, dots in times, empty columns and rows, -200 for missing."""
    rows = "".join(
        f"{day}/03/2004;{hour:02d}.00.00;2,6;1360;-200;;\n"
        for day in (10, 13)
        for hour in range(24)
    )
    (tmp_path / "AirQualityUCI.csv").write_text(
        "Date;Time;CO(GT);PT08.S1(CO);NMHC(GT);;\n" + rows + ";;;;;;\n" * 9
    )
    with pytest.raises(DataError, match=r"no table tells where 'AirQualityUCI'"):
        read(tmp_path / "AirQualityUCI.csv")
    (tmp_path / "places.csv").write_text("name,lat,lon\nAirQualityUCI,45.46,9.19\n")
    found = read(tmp_path / "AirQualityUCI.csv", missing="-200")
    assert found.values.shape == (48, 1, 3)
    assert (found.values[..., 0] == np.float32(2.6)).all()
    assert found.observed[..., 2].sum() == 0
    assert np.datetime64(int(found.times[-1]), "ns") == np.datetime64("2004-03-13T23:00")


def test_beijing(tmp_path):
    """No,year,month,day,hour; local times; text among the columns; places in another table."""
    for station in ("Dongsi", "Gucheng"):
        rows = "".join(
            f"{i + 1},2013,3,{1 + i // 24},{i % 24},{i},-0.7,NNW,{station}\n" for i in range(48)
        )
        text = "No,year,month,day,hour,PM2.5,TEMP,wd,station\n" + rows
        (tmp_path / f"PRSA_{station}.csv").write_text(text)
    with pytest.raises(DataError, match=r"no table tells where 'Dongsi' are.*read.stations"):
        read(tmp_path)
    places = "station,lat,lon\nDongsi,39.929,116.417\nGucheng,39.914,116.184\n"
    (tmp_path / "places.csv").write_text(places)
    found = read(tmp_path, timezone="Asia/Shanghai", variables="PM2.5,TEMP")
    assert found.points.names == ("Dongsi", "Gucheng")
    assert found.values[:, 1, 0].tolist() == list(range(48))
    assert np.datetime64(int(found.times[0]), "ns") == np.datetime64("2013-02-28T16:00")


def test_frames_in_memory(tmp_path):
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
        assert np.array_equal(read(same).values, expected.values, equal_nan=True)
        assert np.array_equal(read(same).times, expected.times)
    (tmp_path / "places.csv").write_text("name,lat,lon\na,1,3\nb,2,3\n")
    wide = frame.pivot(index="time", columns="station", values="v").rename_axis(columns="v")
    found = read(wide, stations=str(tmp_path / "places.csv"))
    assert np.array_equal(found.values, expected.values, equal_nan=True)
    assert found.channels == ("v",)
